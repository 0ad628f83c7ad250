"""CUDA C on machines without a compiler for it."""

from __future__ import annotations

import ctypes.util
import re
import sys
from pathlib import Path

import cuda.bindings
import pytest
from helpers.driver.nvrtc import MISSING
from helpers.repository.subprocesses import start


@pytest.mark.skipif(
    str(cuda.bindings.__version__).startswith("12.") and not MISSING,
    reason="the bindings of CUDA 12 look for the wheel's library beside their own files",
)
@pytest.mark.skipif(
    ctypes.util.find_library("nvrtc") is not None, reason="NVRTC is installed system-wide"
)
def test_without_nvrtc_one_line_says_what_to_install(tmp_path):
    """The process has our packages except NVIDIA's libraries."""
    for path in map(Path, sys.path):
        for entry in path.iterdir() if path.name == "site-packages" else ():
            if entry.name != "nvidia" and not (tmp_path / entry.name).exists():
                (tmp_path / entry.name).symlink_to(entry)
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        # `site` would look for packages under this prefix, and the search for libraries asks
        # `site`. From Python 3.14 on, an environment sets the prefix also without `site`.
        f"sys.prefix = sys.exec_prefix = {str(tmp_path)!r}\n"
        "from cudasync.driver.compiler.compilation import compile_cuda\n"
        "compile_cuda('', architecture=(9, 0))"
    )
    # Variables that could lead to a toolkit.
    empty = dict.fromkeys(("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "CONDA_PREFIX"), "")
    status, printed = start([sys.executable, "-S", "-c", script], 60, **empty)
    assert status == 1, printed
    told = r".*CudasyncError: CUDA C needs NVRTC, .*: pip install nvidia-cuda-nvrtc(-cu12)?"
    assert re.fullmatch(told, printed.splitlines()[-1])
