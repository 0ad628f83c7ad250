"""The kernels of bench_softgpu as PTX text: kept, or made again by NVRTC if it is installed.

    python bench/softgpu/kernels.py        writes kernels.ptx again

With `--first NAME` the program prints the cost of a first compile. This is the milliseconds from
the kernel's source to machine code, in a process that has compiled another kernel before.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import time

from cudasync.ptx import parse
from cudasync.softgpu.jit import compile_module

SOURCE = Path(__file__).with_suffix(".cu")
TEXT = Path(__file__).with_suffix(".ptx")
TARGET = b"--gpu-architecture=compute_75"

# The shape of a block, for which each kernel is compiled.
BLOCKS: dict[str, tuple[int, int, int]] = {
    "saxpy": (256, 1, 1),
    "grid_stride": (256, 1, 1),
    "matmul16": (16, 16, 1),
    "matmul32": (32, 32, 1),
    "matmul_naive": (32, 8, 1),
    "block_sum": (256, 1, 1),
    "stencil": (32, 8, 1),
    "transpose": (32, 8, 1),
    "histogram": (256, 1, 1),
    "mandelbrot": (32, 8, 1),
    "black_scholes": (256, 1, 1),
    "nbody": (256, 1, 1),
    "scan": (1024, 1, 1),
}


def section(name: str) -> str:
    """The source of one kernel."""
    whole = SOURCE.read_text(encoding="utf-8").removesuffix("\n}\n")
    _, *sections = whole.split("\n// ")
    (own,) = (each for each in sections if each.startswith(f"{name}\n"))
    return f'extern "C" {{\n// {own}\n}}\n'


def ptx_of(source: str) -> str:
    """The PTX that NVRTC makes of CUDA C++. ImportError or RuntimeError without NVRTC."""
    from cuda.bindings import nvrtc

    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"bench.cu", 0, [], [])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: {status.name}")
    (status,) = nvrtc.nvrtcCompileProgram(program, 1, [TARGET])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: {status.name}")
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = bytearray(size)
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text.rstrip(b"\0").decode()


def first_compile_ms(name: str) -> float:
    """The milliseconds from source to machine code. Another kernel is compiled first, untimed."""
    for each in ("saxpy" if name != "saxpy" else "scan", name):
        start = time.perf_counter()
        kernel = compile_module(parse(ptx_of(section(each)))).kernels[each]
        kernel.prepare(BLOCKS[each])
    return 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first"]:
        print(f"{first_compile_ms(sys.argv[2]):.2f}")
    else:
        TEXT.write_text(ptx_of(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
