"""Floor 4, dtypes. The dtype in which an operation computes, by the standard's tables.

Two dtypes of one kind promote to the larger, a signed and an unsigned integer to a signed one that
holds both. Promotions that the standard leaves open are a TypeError here: mixed kinds, and uint64
with a signed integer. Python's scalars take the dtype of the arrays beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cudasync.array.dtypes.supported import DEFAULT_OF, INT16, INT32, INT64, supported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import DTypeLike

    from cudasync.array.dtypes.supported import DType

    Scalar: TypeAlias = bool | int | float

# Python's types of weak scalars, with the kinds of dtype that each goes with.
WEAK: dict[type, str] = {bool: "b", int: "iuf", float: "f"}

_SIGNED = {1: INT16, 2: INT32, 4: INT64}


def promoted(first: DType, second: DType) -> DType:
    """The dtype that holds both; TypeError if the standard names none."""
    if first == second:
        return first
    kinds = first.kind, second.kind
    if kinds[0] == kinds[1]:
        return max(first, second, key=lambda each: each.itemsize)
    if set(kinds) == {"i", "u"}:
        signed, unsigned = (first, second) if kinds[0] == "i" else (second, first)
        if signed.itemsize > unsigned.itemsize:
            return signed
        if unsigned.itemsize in _SIGNED:
            return _SIGNED[unsigned.itemsize]
    raise TypeError(
        f"{first} and {second} have no common dtype: cast one with xp.astype(x, xp.{_hint(*kinds)})"
    )


def _hint(*kinds: str) -> str:
    return "float32" if "f" in kinds else "int64"


def goes_with(dtype: DType, scalar: type) -> None:
    """Raise TypeError unless an array of this dtype takes Python scalars of this type."""
    kinds = WEAK.get(scalar)
    if kinds is None or dtype.kind not in kinds:
        instead = "bool" if scalar is bool else "float32" if scalar is float else "int8"
        raise TypeError(
            f"an array of {dtype} and a Python {scalar.__name__} do not go together: cast the "
            f"array with xp.astype(x, xp.{instead})"
        )


def in_range(dtype: DType, scalar: Scalar) -> None:
    """Raise OverflowError for an integer that the dtype does not hold."""
    if dtype.kind in "iu":
        low, high = _limits(dtype)
        if not low <= scalar <= high:
            raise OverflowError(f"{scalar} does not fit {dtype}, which holds {low} to {high}")
    elif type(scalar) is int:
        try:
            float(scalar)
        except OverflowError:
            bits = scalar.bit_length()
            raise OverflowError(
                f"an integer of {bits} bits does not fit {dtype}: give a smaller number or "
                f"float('inf')"
            ) from None


def _limits(dtype: DType) -> tuple[int, int]:
    bits = 8 * dtype.itemsize
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "i" else (0, (1 << bits) - 1)


def common(strong: Iterable[DType], scalars: Iterable[type] = ()) -> DType:
    """The dtype for operands of these dtypes and types of Python scalars; at least one dtype."""
    found: DType | None = None
    for each in strong:
        found = each if found is None else promoted(found, each)
    assert found is not None
    for scalar in scalars:
        goes_with(found, scalar)
    return found


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype in which an operation on these arrays, dtypes and Python scalars computes.

    Raises TypeError if the standard's tables have no answer, and for scalars alone.
    """
    scalars = [type(each) for each in arrays_and_dtypes if type(each) in WEAK]
    strong = [supported(_dtype_of(e)) for e in arrays_and_dtypes if type(e) not in WEAK]
    if not strong:
        raise TypeError("result_type needs at least one array or dtype")
    return common(strong, scalars)


def can_cast(from_: Any, to: DTypeLike, /) -> bool:
    """True if `to` can represent every value of `from_`, a dtype or an array."""
    return bool(np.can_cast(supported(_dtype_of(from_)), supported(to)))


def _dtype_of(thing: Any) -> Any:
    if type(thing) is complex:
        raise NotImplementedError("complex numbers are not supported: keep two arrays of floats")
    return getattr(thing, "dtype", thing)


def default_dtype(value: Scalar) -> DType:
    """The dtype of an array that is made of this one value, or of a step of it."""
    found = DEFAULT_OF.get(type(value))
    if found is None:
        if isinstance(value, np.generic):
            return supported(value.dtype)
        if type(value) is complex:
            raise NotImplementedError(
                "complex numbers are not supported: keep two arrays of floats"
            )
        raise TypeError(f"an array holds numbers, not {type(value).__name__}")
    in_range(found, value)
    return found
