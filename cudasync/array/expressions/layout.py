"""Floor 4, expressions. The common layout of operands: shapes broadcast, axes collapsed.

All strides here are in elements, one row for each operand with the result last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Indices of 32 bits suffice below this, even with a block more than the elements.
MOST_SHORT = (1 << 31) - (1 << 20)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of these broadcast to; ValueError if there is none."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, length in enumerate(shape, rank - len(shape)):
            if result[axis] == 1:
                result[axis] = length
            elif length not in (1, result[axis]):
                told = " and ".join(map(str, shapes))
                raise ValueError(f"shapes {told} do not broadcast: axis {axis - rank} differs")
    return tuple(result)


def broadcast_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], to: tuple[int, ...]
) -> tuple[int, ...]:
    """The strides with which an array of `shape` appears to have shape `to`."""
    missing = len(to) - len(shape)
    return (0,) * missing + tuple(
        0 if length == 1 else stride for length, stride in zip(shape, strides, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes after collapsing: lengths, and for each operand its strides.

    `first` is the offset of each operand's address from its lowest element, for reversed axes.
    """

    lengths: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]


def collapsed(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> Layout:
    """The fewest axes that reach the same elements together.

    Axes are sorted so that the result's last is the closest. An axis that all operands traverse
    backwards is reversed. An axis that continues the next one in all operands is joined to it. This
    changes the order of elements, which does not affect elementwise functions.
    """
    axes = [
        (length, [each[axis] for each in strides])
        for axis, length in enumerate(shape)
        if length != 1
    ]
    axes.sort(key=lambda axis: [-abs(step) for step in reversed(axis[1])])
    first = [0] * len(strides)
    turned = []
    for length, steps in axes:
        if steps[-1] < 0 and all(step <= 0 for step in steps):
            first = [at + (length - 1) * step for at, step in zip(first, steps, strict=True)]
            steps = [-step for step in steps]
        turned.append((length, steps))
    joined: list[tuple[int, list[int]]] = []
    for length, steps in turned:
        if joined and joined[-1][1] == [length * step for step in steps]:
            joined[-1] = (joined[-1][0] * length, steps)
        else:
            joined.append((length, steps))
    lengths = tuple(length for length, _ in joined)
    by_operand = tuple(tuple(steps[i] for _, steps in joined) for i in range(len(strides)))
    return Layout(lengths, by_operand, tuple(first))


def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], to: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The strides with which the elements appear in the shape `to`, in C order; None if no strides
    do, so that a copy is needed. Both shapes hold the same number of elements, not 0."""
    axes = [(n, step) for n, step in zip(shape, strides, strict=True) if n != 1]
    result = [0] * len(to)
    # From the last axis on: runs of axes of both shapes with the same number of elements.
    old, new = len(axes) - 1, len(to) - 1
    while new >= 0:
        if to[new] == 1:
            new -= 1
            continue
        held, step = axes[old]
        wanted, first = to[new], new
        while held != wanted:
            if held < wanted:
                if axes[old - 1][1] != axes[old][0] * axes[old][1]:
                    return None
                old -= 1
                held *= axes[old][0]
            else:
                first -= 1
                wanted *= to[first]
        for axis in range(new, first - 1, -1):
            result[axis] = step
            step *= to[axis]
        new, old = first - 1, old - 1
    return tuple(result)
