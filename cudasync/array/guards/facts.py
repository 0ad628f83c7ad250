"""Floor 4, guards. What is known of a place: plain data by its value, an object by its identity.

Facts are compared by `==`, which calls nothing of the user's: not even the `==` of arrays.
"""

from __future__ import annotations

from array import array
from collections import deque
from types import EllipsisType, MappingProxyType, NoneType
from typing import Any

import numpy as np

from cudasync.array.guards.code_reads import is_library

_NUMBERS = (bool, int, float, complex, np.generic)
_PLAIN = (*_NUMBERS, str, bytes, NoneType, EllipsisType, range, slice, np.dtype)


# Objects that count with their elements.
CONTAINERS = (list, dict, set, frozenset, deque, bytearray, array, MappingProxyType, tuple)


def is_plain(value: Any) -> bool:
    """True for numbers, texts and other constants, whose identity means nothing."""
    return issubclass(type(value), _PLAIN)


def has_attribute(kind: type, name: str) -> bool:
    """`hasattr` of a class, which does not ask its metaclass."""
    return any(name in vars(base) for base in kind.__mro__)


def kind_of_value(value: Any) -> Any:
    """A value as part of a signature. It tells 1, 1.0 and True apart, and 0.0 and -0.0, which are
    equal; NaN equals itself. Raises TypeError for a value that cannot be hashed, except a slice.

    An object of a class of the user's is its own text: printing it may take long, or wait.
    """
    kind = type(value)
    if issubclass(kind, slice):
        return kind, repr(value)
    hash(value)
    if not is_plain(value) and not is_library(kind.__module__):
        return kind, value
    return kind, value if value == value else None, repr(value)


def is_same(one: Any, other: Any) -> bool:
    """True for one object, and for equal plain data."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return is_plain(one) and bool(kind_of_value(one) == kind_of_value(other))


class Same:
    """An object as a fact: it equals itself alone, and is kept alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


class Digest:
    """An array of NumPy's as a fact: it equals an array of equal bytes."""

    __slots__ = ("_bytes", "_kind", "array")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self._kind = array.dtype, array.shape
        self._bytes = array.tobytes()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Digest) and self._kind == other._kind and self._bytes == other._bytes
        )

    __hash__ = None  # type: ignore[assignment]


def changed(name: str, now: Any, before: Any) -> str:
    if isinstance(now, Same) and isinstance(before, Same):
        if type(now.value) is type(before.value):
            return f"{name} (from outside) is another {type(now.value).__name__}"
        return f"{name} (from outside) is {_shown(now)}, and was {_shown(before)}"
    return f"{name} (from outside) is {_shown(now)}, and was {_shown(before)}"


def _shown(fact: Any) -> str:
    if isinstance(fact, Same):
        return f"a {type(fact.value).__name__}"
    if isinstance(fact, Digest):
        return f"an array of {fact.array.size} numbers"
    if isinstance(fact, tuple) and isinstance(fact[0], type):
        if issubclass(fact[0], CONTAINERS):
            size = fact[1] if isinstance(fact[1], int) else len(fact[1])
            return f"a {fact[0].__name__} of {size}"
        return str(fact[-1])
    return str(fact)
