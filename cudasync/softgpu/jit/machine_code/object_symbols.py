"""Cellar, jit. Finds the symbols that an object file needs from the process.

LLVM ends the process when it links a symbol that it cannot find, so a kernel's symbols are looked
up first. The format is ELF64, little endian: the only kind of object made here. Layouts are from
the System V ABI, "Object Files".
"""

from __future__ import annotations

import ctypes
import functools
import struct
from ctypes.util import find_library
from typing import TYPE_CHECKING

import llvmlite.binding as llvm

if TYPE_CHECKING:
    from collections.abc import Sequence

_SYMBOL_TABLE = 2
_UNDEFINED = 0
_LOCAL = 0


def _symbols(data: bytes) -> list[tuple[str, bool]]:
    """The global names of an object file, and whether the file defines each."""
    if data[:4] != b"\x7fELF" or data[4] != 2:
        return []
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections_at + index * size)
        for index in range(count)
    ]
    found: list[tuple[str, bool]] = []
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names_at = sections[link][4]
        for place in range(offset, offset + length, entry):
            name, info, _, section = struct.unpack_from("<IBBH", data, place)
            if name and info >> 4 != _LOCAL:
                start = names_at + name
                text = data[start : data.index(b"\0", start)].decode()
                found.append((text, section != _UNDEFINED))
    return found


@functools.cache
def _mathematics() -> ctypes.CDLL:
    # `find_library` may start a process.
    return ctypes.CDLL(find_library("m") or "libm.so.6")


def missing_symbols(files: Sequence[bytes]) -> set[str]:
    """The symbols that object files need which neither they nor the process define.

    Python and the C library's mathematics count as the process. Their symbols are given to LLVM
    when they are needed, because a process may load them without exporting them.
    """
    tables = [_symbols(data) for data in files]
    defined = {name for table in tables for name, is_defined in table if is_defined}
    wanted = {name for table in tables for name, _ in table} - defined
    missing = {name for name in wanted if not llvm.address_of_symbol(name)}
    for name in sorted(missing):
        home = ctypes.pythonapi if name.startswith("Py") else _mathematics()
        function = getattr(home, name, None)
        if function is not None:
            address = ctypes.cast(function, ctypes.c_void_p).value
            assert address is not None
            llvm.add_symbol(name, address)
            missing.remove(name)
    return missing
