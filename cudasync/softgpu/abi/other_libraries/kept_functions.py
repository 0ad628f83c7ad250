"""Cellar, abi. Functions of intermediate code that only PTX calls: kept through the link.

NVIDIA's linker drops functions that no kernel of the intermediate code reaches. It does not see the
PTX inputs. So a small kernel that takes the address of each such function is added. NVRTC compiles
it. Without NVRTC, the functions are dropped, and the link names the undefined ones.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_KERNEL: Final = "__cudasync_keeps_functions"
_DECLARED: Final = re.compile(r"\.extern\s+\.func\s*(?:\([^)]*\)\s*)?([\w$]+)")
_DEFINED: Final = re.compile(
    r"^[^/\n]*\.func\s*(?:\([^)]*\)\s*)?([\w$]+)\s*(?:\([^)]*\))?\s*\{", re.MULTILINE
)
# Functions of the system, which no input defines.
_SYSTEM: Final = frozenset({"vprintf", "malloc", "free", "__assertfail"})
_ENTRY: Final = re.compile(rf"\.visible \.entry {_KERNEL}\(.*?^\}}$", re.MULTILINE | re.DOTALL)


def undefined(texts: Iterable[bytes]) -> list[str]:
    """The functions that PTX declares but does not define."""
    whole = "\n".join(text.decode(errors="replace") for text in texts)
    return sorted(set(_DECLARED.findall(whole)) - set(_DEFINED.findall(whole)) - _SYSTEM)


def keeper(names: list[str], architecture: str) -> bytes | None:
    """Intermediate code of a kernel that reaches these functions; None without NVRTC."""
    declared = "".join(f'extern "C" __device__ void {name}(void);\n' for name in names)
    taken = "".join(f"places[{i}] = (void *){name}; " for i, name in enumerate(names))
    source = f'{declared}extern "C" __global__ void {_KERNEL}(void **places) {{ {taken}}}\n'
    options = [b"-dlto", b"-rdc=true", f"-arch=sm_{architecture}".encode()]
    try:
        nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
        program = nvrtc.nvrtcCreateProgram(source.encode(), b"keeper.cu", 0, [], [])[1]
    except (ImportError, RuntimeError):
        return None
    try:
        if int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0]):
            return None
        code = bytearray(nvrtc.nvrtcGetLTOIRSize(program)[1])
        return None if int(nvrtc.nvrtcGetLTOIR(program, code)[0]) else bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def shown(ptx: bytes, names: list[str]) -> bytes:
    """The linked PTX with these functions visible, and without the kernel that kept them."""
    text = _ENTRY.sub("", ptx.decode())
    for name in names:
        head = re.compile(rf"^(\.func\s[^;{{}}]*?\b{re.escape(name)}\b)", re.MULTILINE)
        text = head.sub(r".visible \1", text)
    return text.encode()
