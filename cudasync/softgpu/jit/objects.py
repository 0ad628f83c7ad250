"""Cellar, jit. What an object file of machine code still needs from the process.

LLVM ends the process when it links a symbol that it cannot find, so what a kernel needs is looked
up first. ELF64, little endian: the only kind of object made here. Layouts are from the System V
ABI, "Object Files".
"""

from __future__ import annotations

import ctypes
import struct
from ctypes.util import find_library

import llvmlite.binding as llvm

_SYMBOL_TABLE = 2
_UNDEFINED = 0


def undefined_symbols(data: bytes) -> set[str]:
    """The names that an object file refers to and does not define."""
    if data[:4] != b"\x7fELF" or data[4] != 2:
        return set()
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections_at + index * size)
        for index in range(count)
    ]
    found: set[str] = set()
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names_at = sections[link][4]
        for place in range(offset, offset + length, entry):
            name, _, _, section = struct.unpack_from("<IBBH", data, place)
            if section == _UNDEFINED and name:
                start = names_at + name
                found.add(data[start : data.index(b"\0", start)].decode())
    return found


def missing_symbols(data: bytes) -> set[str]:
    """Those of them that neither this process nor the C library's mathematics has.

    The latter is found and named to LLVM where it is needed: a process may have it without
    showing it to others.
    """
    missing = {name for name in undefined_symbols(data) if not llvm.address_of_symbol(name)}
    if not missing:
        return missing
    library = ctypes.CDLL(find_library("m") or "libm.so.6")
    for name in sorted(missing):
        function = getattr(library, name, None)
        if function is not None:
            address = ctypes.cast(function, ctypes.c_void_p).value
            assert address is not None
            llvm.add_symbol(name, address)
            missing.remove(name)
    return missing
