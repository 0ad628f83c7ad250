"""Finds nvcc: on the PATH, or in NVIDIA's wheels."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path


def nvcc_command() -> list[str] | None:
    """The command of an nvcc of CUDA 13; None if there is none."""
    found = shutil.which("nvcc")
    if found:
        return [found]
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        top = Path(folder) / "cu13"
        # nvidia-cuda-runtime has the headers and libcudadevrt.a; nvidia-cuda-crt has their own
        # includes.
        if (top / "bin" / "nvcc").exists() and (top / "include" / "cuda_runtime.h").exists():
            return [str(top / "bin" / "nvcc"), f"-L{top / 'lib'}"]
    return None
