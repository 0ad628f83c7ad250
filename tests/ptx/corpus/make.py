"""Compiles kernels.cu for each target of the corpus: `python tests/ptx/corpus/make.py`.

Needs the package nvidia-cuda-nvrtc, but no GPU. Run it when kernels.cu changes.
"""

from __future__ import annotations

from pathlib import Path

from cuda.bindings import nvrtc

HERE = Path(__file__).parent
TARGETS = ("75", "80", "90", "100", "120")


def compiled(source: str, target: str) -> str:
    """PTX of `source` for the architecture `target`."""
    options = [b"--gpu-architecture=compute_" + target.encode()]
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise SystemExit(log.decode())
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    return text.decode().rstrip("\0")


if __name__ == "__main__":
    for target in TARGETS:
        text = compiled((HERE / "kernels.cu").read_text(), target)
        (HERE / f"sm_{target}.ptx").write_text(text)
