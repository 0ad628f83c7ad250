"""Floor 4, fused functions. Outside names of a traced function, as part of its signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUMBERS = (bool, int, float, np.generic)


class Identity(NamedTuple):
    """The identity of an object, as part of a key."""

    address: int
    kind: str


def named_by(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The numbers and arrays among the globals that `function` names, and its whole closure."""
    code = getattr(function, "__code__", None)
    globals_ = getattr(function, "__globals__", {})
    for name in () if code is None else code.co_names:
        if name in globals_:
            value = globals_[name]
            if isinstance(value, NUMBERS) or hasattr(type(value), "__cudasync_plan__"):
                yield name, value
    names = () if code is None else code.co_freevars
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # It is not bound yet.
            yield name, None


def kind_of_value(value: Any) -> Any:
    """A value as part of a signature. It tells 1, 1.0 and True apart, and 0.0 and -0.0, which are
    equal; NaN equals itself. Raises TypeError for a value that cannot be hashed."""
    hash(value)
    return type(value), value if value == value else None, repr(value)


def kind_from_outside(value: Any) -> Any:
    """A named value as part of a signature: a number by value, anything else by identity."""
    if isinstance(value, NUMBERS):
        return type(value), repr(value)
    return Identity(id(value), type(value).__name__)
