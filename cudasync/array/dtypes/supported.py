"""Floor 4, dtypes. The dtypes that arrays compute with, and their kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    DType: TypeAlias = np.dtype[Any]

BOOL = np.dtype(np.bool_)
INT8, INT16, INT32, INT64 = (np.dtype(f"i{size}") for size in (1, 2, 4, 8))
UINT8, UINT16, UINT32, UINT64 = (np.dtype(f"u{size}") for size in (1, 2, 4, 8))
FLOAT16, FLOAT32, FLOAT64 = (np.dtype(f"f{size}") for size in (2, 4, 8))

ALL: tuple[DType, ...] = (
    BOOL,
    *(INT8, INT16, INT32, INT64),
    *(UINT8, UINT16, UINT32, UINT64),
    *(FLOAT16, FLOAT32, FLOAT64),
)
_ALL = frozenset(ALL)

# The default dtypes: of a Python scalar, and of functions that make arrays.
DEFAULT_OF: dict[type, DType] = {bool: BOOL, int: INT64, float: FLOAT32}
DEFAULT_FLOAT = FLOAT32
DEFAULT_INT = INT64

# NumPy's letters for kinds, as used throughout.
NUMERIC = "iuf"
INTEGRAL = "iu"

_WORDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def supported(dtype: DTypeLike) -> DType:
    """`dtype` as an object; TypeError unless arrays compute with it, NotImplementedError if it is
    complex."""
    if dtype is None:
        raise TypeError("a dtype is needed here, not None")
    kind = np.dtype(dtype)
    if kind in _ALL:
        return kind.newbyteorder("=")
    if kind.kind == "c":
        raise NotImplementedError(
            f"{kind}: complex numbers are not supported: keep two arrays of floats"
        )
    names = ", ".join(each.name for each in ALL)
    raise TypeError(f"arrays cannot compute with {kind}: use {names}")


def isdtype(dtype: DTypeLike, kind: DTypeLike | str | tuple[DTypeLike | str, ...]) -> bool:
    """True if `dtype` is of `kind`: a dtype, one of the standard's words, or a tuple of those.

    The words are "bool", "signed integer", "unsigned integer", "integral", "real floating",
    "complex floating" and "numeric"; ValueError for any other string.
    """
    asked = np.dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(asked, each) for each in kind)
    if isinstance(kind, str):
        if kind not in _WORDS:
            raise ValueError(f"no kind of dtype is called {kind!r}: one of {', '.join(_WORDS)}")
        return asked.kind in _WORDS[kind]
    return asked == np.dtype(kind)
