"""Floor 1. PyCapsule, in which DLPack passes a tensor to another library.

A capsule is named "dltensor" or "dltensor_versioned". A consumer that takes the tensor renames the
capsule permanently, with the prefix "used_"; a renamed capsule is empty.
"""

from __future__ import annotations

import ctypes
from typing import Any

# Separate handles: their argument types do not affect other users of the libraries.
_python = ctypes.PyDLL(None)
_libc = ctypes.CDLL(None)

_new = _python.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3
_name = _python.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_pointer = _python.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_rename = _python.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_void_p)

_copy_for_ever = _libc.strdup
_copy_for_ever.restype, _copy_for_ever.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)

PLAIN = b"dltensor"
VERSIONED = b"dltensor_versioned"

# A capsule keeps the address of its name, and may be read after our modules are gone.
_addresses = {
    name: _copy_for_ever(name)
    for name in (PLAIN, VERSIONED, b"used_" + PLAIN, b"used_" + VERSIONED)
}
_Capsule = type(_new(1, _addresses[PLAIN], None))


def make_capsule(pointer: int, name: bytes) -> Any:
    """A capsule around a tensor, without a destructor.

    A destructor in Python would run inside the code that drops the capsule, and could lose an
    exception that is propagating there.
    """
    return _new(pointer, _addresses[name], None)


def name_of(capsule: Any) -> bytes:
    """The name of a capsule. Raises TypeError for anything else."""
    if type(capsule) is not _Capsule:
        raise TypeError(f"__dlpack__ gave a {type(capsule).__name__}, not a PyCapsule")
    name: bytes | None = _name(capsule)
    return name or b""


def pointer_in(capsule: Any, name: bytes) -> int:
    """The tensor in a capsule of this name."""
    return int(_pointer(capsule, name))


def mark_used(capsule: Any, name: bytes) -> None:
    """Take the tensor out: from now on the caller must give it back."""
    _rename(capsule, _addresses[b"used_" + name])
