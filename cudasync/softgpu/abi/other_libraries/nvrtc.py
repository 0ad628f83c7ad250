"""Cellar. A program's PTX in place of NVRTC's machine code, which no software GPU can run.

NVRTC compiles to machine code if it is asked for a real architecture (sm_80), and keeps the PTX
beside it. The stub exports two of its functions under their own names. The stub is loaded before
NVRTC and for the whole process, and clients search the process first, so they find these functions.
NVRTC is not loaded before a client loads it. A process that loaded NVRTC before the stub keeps
NVRTC's functions.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.stub.registry import export

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

# nvrtcResult.
_INVALID_INPUT: Final = 3

_loaded: dict[str, Any] = {}


def _nvrtc() -> Any:
    """The real NVRTC. It is in the process, because one of its programs exists."""
    library = _loaded.get("nvrtc")
    if library is None:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if "/libnvrtc.so" in line}
        library = _loaded["nvrtc"] = ctypes.CDLL(min(paths))
    return library


@export("nvrtcGetCUBINSize", signature="void *, size_t *", before_init=True)
def nvrtc_get_cubin_size(_machine: Machine, program: int, size: int) -> int:
    nvrtc = _nvrtc()
    code: int = nvrtc.nvrtcGetCUBINSize(ctypes.c_void_p(program), ctypes.c_void_p(size))
    if code == 0 and size and ctypes.c_size_t.from_address(size).value:
        code = nvrtc.nvrtcGetPTXSize(ctypes.c_void_p(program), ctypes.c_void_p(size))
    return code


@export("nvrtcGetCUBIN", signature="void *, char *", before_init=True)
def nvrtc_get_cubin(_machine: Machine, program: int, code: int) -> int:
    nvrtc = _nvrtc()
    size = ctypes.c_size_t()
    if nvrtc.nvrtcGetCUBINSize(ctypes.c_void_p(program), ctypes.byref(size)) or not size.value:
        return _INVALID_INPUT
    result: int = nvrtc.nvrtcGetPTX(ctypes.c_void_p(program), ctypes.c_void_p(code))
    return result
