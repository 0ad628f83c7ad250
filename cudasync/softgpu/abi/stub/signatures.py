"""Cellar. C signatures of the driver's functions, read from the bindings that will call them.

`cuda.bindings.cydriver` carries the C type of every function that it can call, as the name of a
capsule: "CUresult (CUdevice *, int)". So the prototypes are exactly those of the installed version,
and no header is needed.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any, Final

from cuda.bindings import cydriver, driver

_SCALARS: Final[dict[str, Any]] = {
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "unsigned char": ctypes.c_ubyte,
    "unsigned short": ctypes.c_ushort,
    "unsigned PY_LONG_LONG": ctypes.c_uint64,
    "unsigned long long": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "cuuint32_t": ctypes.c_uint32,
    "cuuint64_t": ctypes.c_uint64,
    "CUdevice": ctypes.c_int,
    "CUdeviceptr": ctypes.c_uint64,
    "CUtexObject": ctypes.c_uint64,
    "CUsurfObject": ctypes.c_uint64,
    "CUmemGenericAllocationHandle": ctypes.c_uint64,
    # Two ints by value: both psABIs pass such a structure in one 64-bit register.
    "CUmemLocation": ctypes.c_uint64,
}

# Pointers and handles are integers here: ctypes then passes a plain int, 0 for NULL.
_POINTER: Final = ctypes.c_size_t


# Looked up by an item, which is ours alone: other modules give the attribute other types.
_get_name = ctypes.pythonapi["PyCapsule_GetName"]
_get_name.restype = ctypes.c_char_p
_get_name.argtypes = [ctypes.py_object]


class UnknownSignature(Exception):
    """The function takes an argument by value that has no plain C type here."""


@cache
def c_signature(name: str) -> str | None:
    """The C signature of a function of the bindings; None if they have no such function."""
    capsule = cydriver.__pyx_capi__.get(name)
    if capsule is None:
        return None
    text: bytes = _get_name(capsule)
    return text.decode()


@cache
def argument_types(signature: str) -> tuple[Any, ...]:
    """The ctypes of the arguments of "CUresult (A, B *)", or of "A, B *" alone."""
    match = re.fullmatch(r"(?:CUresult \()?(.*?)\)?", signature)
    assert match is not None, signature
    arguments = match[1].strip()
    if arguments in ("", "void"):
        return ()
    return tuple(_argument_type(argument.strip()) for argument in arguments.split(","))


@cache
def _argument_type(text: str) -> Any:
    if text.endswith("*"):
        return _POINTER
    found = _SCALARS.get(text)
    if found is not None:
        return found
    named = getattr(driver, text, None)
    if named is None:
        raise UnknownSignature(text)
    if hasattr(named, "__members__"):
        return ctypes.c_int
    # Handles convert to int, and structures do not.
    if hasattr(named, "__int__"):
        return _POINTER
    raise UnknownSignature(text)
