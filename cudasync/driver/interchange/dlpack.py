"""Floor 1. DLPack: the C structures with which array libraries share memory, and element types.

Written from the specification of DLPack 1.0, which also covers 0.x: the older form has no version
and no flags. Nothing here owns anything.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

# The supported version. Another major version has another layout.
MAJOR, MINOR = 1, 0

# DLPACK_FLAG_BITMASK_...
READ_ONLY = 1
IS_COPIED = 2


class DLDevice(ctypes.Structure):
    """The device of a tensor."""

    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DLDataType(ctypes.Structure):
    """The type of the elements: `lanes` numbers of `bits`, of the kind `code`."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    """A tensor; shape and strides count elements, and null strides mean C order."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    """A tensor on loan, before version 1; `deleter(self)` gives it back."""

    _fields_ = (
        ("dl_tensor", DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DLPackVersion(ctypes.Structure):
    """The version; `major` changes with the layout behind the flags."""

    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class DLManagedTensorVersioned(ctypes.Structure):
    """A tensor on loan, from version 1 on."""

    _fields_ = (
        ("version", DLPackVersion),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    )


class ElementType(NamedTuple):
    """A DLDataType of one lane."""

    code: int
    bits: int


_INT, _UINT, _FLOAT, _OPAQUE, _BFLOAT, _COMPLEX, _BOOL = range(7)
_CODES = {"i": _INT, "u": _UINT, "f": _FLOAT, "c": _COMPLEX, "b": _BOOL}
_LETTERS = {code: letter for letter, code in _CODES.items()}
_BITS = {
    _INT: (8, 16, 32, 64),
    _UINT: (8, 16, 32, 64),
    _FLOAT: (16, 32, 64),
    _COMPLEX: (64, 128),
    _BOOL: (8,),
}
_WORDS = ("int", "uint", "float", "opaque handle", "bfloat", "complex", "bool")


def element_type(dtype: np.dtype[Any]) -> ElementType:
    """DLPack's type for a dtype. Raises BufferError for a dtype without one."""
    bits = 8 * dtype.itemsize
    if dtype.name == "bfloat16":
        return ElementType(_BFLOAT, bits)
    code = _CODES.get(dtype.kind)
    if code is None or bits not in _BITS[code]:
        raise BufferError(f"DLPack has no type for elements of {dtype}")
    if not dtype.isnative:
        raise BufferError(f"DLPack shares only numbers in the machine's byte order, not {dtype}")
    return ElementType(code, bits)


def dtype_of(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    """The dtype for a DLDataType. Raises BufferError if NumPy has none."""
    if lanes == 1:
        if bits in _BITS.get(code, ()):
            return np.dtype("?" if code == _BOOL else f"{_LETTERS[code]}{bits // 8}")
        if (code, bits) == (_BFLOAT, 16):
            return _bfloat16()
    word = _WORDS[code] if code < len(_WORDS) else f"type code {code}, "
    vector = f" in vectors of {lanes}" if lanes != 1 else ""
    raise BufferError(f"NumPy has no dtype for elements of {word}{bits}{vector}")


def _bfloat16() -> np.dtype[Any]:
    try:
        return np.dtype("bfloat16")
    except TypeError:
        raise BufferError(
            "NumPy has no dtype for elements of bfloat16 unless ml_dtypes is imported: import "
            "ml_dtypes, or share a view as uint16"
        ) from None
