"""Floor 4, the standard's namespace: permitted values of `device=`, `shape=` and `axis=`."""

from __future__ import annotations

import operator
from typing import Any

from cudasync.array.host.memory import CPU
from cudasync.driver import ANY
from cudasync.driver.arguments.remedies import described
from cudasync.driver.streams.current_streams import given_device


def place(device: Any) -> Any:
    """The device for a value of `device=`: None for the current one, an ordinal, a Device, "cpu" or
    `cs.ANY`, which is returned unchanged."""
    if device == CPU:
        return CPU
    return device if device is ANY else given_device(device)


def whole(value: Any, what: str) -> int:
    """An integer; for anything else a TypeError that names the expected thing."""
    if not hasattr(type(value), "__index__"):
        raise TypeError(f"{what} is an integer, not {described(value)}: give int(...)")
    return operator.index(value)


def as_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple; TypeError unless all are integers, ValueError for a negative one."""
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    lengths = tuple(whole(n, "a length in a shape") for n in given)
    if any(n < 0 for n in lengths):
        raise ValueError(f"a shape cannot be negative: {lengths}")
    return lengths


def as_axis(axis: Any, rank: int) -> int:
    """An axis counted from the front; IndexError (the standard's word) beyond the rank."""
    found = whole(axis, "an axis")
    if not -rank <= found < rank:
        raise IndexError(f"axis {found} is outside an array of {rank} dimensions")
    return found % rank


def as_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """One axis or several, each once; ValueError for a duplicate."""
    given = axes if isinstance(axes, (tuple, list)) else (axes,)
    found = tuple(as_axis(axis, rank) for axis in given)
    if len(set(found)) < len(found):
        raise ValueError(f"an axis is named twice in {tuple(given)}")
    return found
