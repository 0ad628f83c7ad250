"""Cellar, abi. The functions of other libraries that one of CuPy's modules is linked with.

A module loads only if each of these names exists. They are read from the module's own table of
dynamic symbols (System V ABI, ELF-64), so a stand-in has exactly the names of the installed CuPy.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_SECTIONS_AT: Final = 0x28
_SECTION_COUNT_AT: Final = 0x3C
_DYNAMIC_SYMBOLS: Final = 11
_UNDEFINED: Final = 0


def functions_of(path: str | Path, prefix: str) -> list[str]:
    """The names with this prefix that the shared object at `path` expects elsewhere, sorted."""
    image = Path(path).read_bytes()
    (at,) = struct.unpack_from("<Q", image, _SECTIONS_AT)
    (count,) = struct.unpack_from("<H", image, _SECTION_COUNT_AT)
    sections = [_SECTION.unpack_from(image, at + n * _SECTION.size) for n in range(count)]
    found: set[str] = set()
    for _, kind, _, _, offset, size, names, _, _, _ in sections:
        if kind != _DYNAMIC_SYMBOLS:
            continue
        text = sections[names][4]
        for name, _, _, section, _, _ in _SYMBOL.iter_unpack(image[offset : offset + size]):
            if section == _UNDEFINED:
                end = image.index(b"\0", text + name)
                found.add(image[text + name : end].decode())
    return sorted(name for name in found if name.startswith(prefix))
