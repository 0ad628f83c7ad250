"""Cellar. The device's run-time library, as PTX: what a program refers to, and no more.

NVIDIA's library (libcudadevrt) is machine code, which cannot run here. nvcc's names of functions
that launch kernels have the prefix __cudaCDP2, and the suffix _ptsz where the default stream is a
thread's own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.linking import launch_functions, stream_functions
from cudasync.softgpu.core.linking.device_runtime import PROVIDED, RUNTIME_PTX

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEADER: Final = ".version 7.0\n.target sm_70\n.address_size 64\n"
_FUNCTIONS: Final = {**launch_functions.FUNCTIONS, **stream_functions.FUNCTIONS}
_PARTS: Final = {
    **launch_functions.OWN_PARTS,
    **stream_functions.OWN_PARTS,
    **{f"cudasync_{name}": part for name, part in _FUNCTIONS.items()},
}
_CALL: Final = re.compile(r"(?:__cudaCDP2|cuda)([A-Za-z]\w*?)(?:_ptsz)?", re.ASCII)


def called(name: str) -> str | None:
    """The function of CUDA's that device code means by `name`; None if it is no such name."""
    found = _CALL.fullmatch(name)
    return f"cuda{found[1]}" if found else None


def library_texts(undefined: Iterable[str]) -> list[str]:
    """The texts that define those of the names that the library has."""
    wanted = sorted(undefined)
    texts = [RUNTIME_PTX] if not PROVIDED.isdisjoint(wanted) else []
    functions = {
        name: _FUNCTIONS[call[1]]
        for name in wanted
        if (call := _CALL.fullmatch(name)) and call[1] in _FUNCTIONS
    }
    if functions:
        needed: dict[str, None] = {}
        for part in functions.values():
            _add(part.needs, needed)
        pieces = [_PARTS[name].text.replace("NAME", name) for name in needed]
        pieces += [part.text.replace("NAME", name) for name, part in functions.items()]
        texts.append("".join((_HEADER, *pieces)))
    return texts


def _add(names: Iterable[str], needed: dict[str, None]) -> None:
    """Add parts, each behind the parts that it needs."""
    for name in names:
        if name not in needed:
            _add(_PARTS[name].needs, needed)
            needed[name] = None
