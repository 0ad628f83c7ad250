"""Floor 4, reductions. Cuts a reduction into stages, by shapes and strides alone.

Axes are *kept*, with one result for each place along them, or *reduced*. A stage cuts the reduced
elements into parts of `chunk` elements and leaves one state for each part, until one part is left.
Nothing depends on the device or on other work, so elements are always combined in the same order.

A stage has one of three forms. *Across*: a block of threads, or a warp, goes through a part
together; this suits elements that are close along the reduced axes. *In rows*: a warp goes through
`ROWS` short rows at once, so that combining among its lanes takes as many steps for all of them as
for two. *Down*: each thread goes through a part of its own, beside its neighbours' parts; this
suits the other strides, and few elements for each result.

In a stage an element takes part in at most `MOST_ROUNDINGS` combinations: with its seven neighbours
as a tree (3), along a thread's way (8 across, 16 down, 7 more for the rest of 8), and across, among
the threads of a block (7 along the warps, 5 as a tree).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.array.expressions.layout import MOST_SHORT, Layout, collapsed

if TYPE_CHECKING:
    from collections.abc import Sequence

WARP = 32
BLOCK = 256
# The number of elements that a thread reads before it combines them with its state.
UNROLLED = 8
MOST_ROUNDINGS = 30

# The number of a warp's results at once, if rows are this short and numerous.
ROWS = 8
_SHORT_ROW = 8 * WARP
_MANY_ROWS = 1024

_FEW = 32
_OF_A_WARP = 64 * WARP
_OF_A_BLOCK = 64 * BLOCK
_OF_A_THREAD = 16 * UNROLLED
_MOST_Y = 65535


@dataclass(frozen=True, slots=True)
class Axes:
    """Kept and reduced axes of some operands after collapsing, strides in elements."""

    kept: Layout
    reduced: Layout

    @property
    def outputs(self) -> int:
        return math.prod(self.kept.lengths)

    @property
    def length(self) -> int:
        return math.prod(self.reduced.lengths)

    @property
    def first(self) -> tuple[int, ...]:
        """The offset of each operand's address from its lowest element."""
        both = zip(self.kept.first, self.reduced.first, strict=True)
        return tuple(kept + reduced for kept, reduced in both)


@dataclass(frozen=True, slots=True)
class StageClass:
    """The properties, besides the functions, that decide the text of a stage.

    `threads` share a part across, or `rows` parts of as many results; 0 stands for down. `steps`
    has for each operand the stride along the last kept and the last reduced axis: 0, 1, or None for
    any other.
    """

    threads: int
    rows: int
    kept_rank: int
    reduced_rank: int
    is_wide: bool
    steps: tuple[tuple[int | None, int | None], ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One launch: its class, and its cut."""

    axes: Axes
    kind: StageClass
    chunk: int
    parts: int

    @property
    def of_result(self) -> tuple[int, int]:
        """The distances of results, by output and by part."""
        return (self.parts, 1) if self.kind.threads else (1, self.axes.outputs)

    @property
    def launch_shape(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Grid and block."""
        outputs = self.axes.outputs
        if self.kind.threads:
            # As many groups that share a warp as fit in a block.
            groups = -(-outputs // self.kind.rows) * self.parts
            down = min(BLOCK // self.kind.threads, groups)
            return (-(-groups // down),), (self.kind.threads, down)
        across = min(BLOCK, 1 << (outputs - 1).bit_length())
        down = min(BLOCK // across, self.parts)
        return (-(-outputs // across), -(-self.parts // down)), (across, down)

    @property
    def numbers(self) -> list[int]:
        """The numbers behind the result's pointer, in the order of the text's parameters."""
        axes, kind = self.axes, self.kind
        values = [axes.outputs, self.parts, axes.length, self.chunk, *self.of_result]
        values += [*axes.kept.lengths, *axes.reduced.lengths]
        for at, last in enumerate(kind.steps):
            for side, step in zip((axes.kept, axes.reduced), last, strict=True):
                steps = side.strides[at]
                values += steps if step is None else steps[:-1]
        return values


def axes_of(
    shape: tuple[int, ...],
    strides: list[tuple[int, ...]],
    reduced: tuple[int, ...],
    *,
    in_order: bool,
    guides: Sequence[tuple[int, ...]] = (),
) -> Axes:
    """The axes of operands that are broadcast to one shape. With `in_order` the reduced axes are
    traversed in C order, else by closeness in memory. `guides` are strides of arrays that are not
    read; if there are some, they decide the closeness."""
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    sides = [
        _side(shape, [*strides, *guides], axes, is_ordered, len(strides))
        for axes, is_ordered in ((kept, True), ([*reduced], in_order))
    ]
    return Axes(*sides)


def _side(
    shape: tuple[int, ...],
    strides: list[tuple[int, ...]],
    axes: list[int],
    in_order: bool,
    count: int,
) -> Layout:
    lengths = tuple(shape[axis] for axis in axes)
    rows = [tuple(each[axis] for axis in axes) for each in strides]
    if in_order:
        rows.append(_ones_of(lengths))
    found = collapsed(lengths, rows)
    if not found.lengths:
        return Layout((1,), ((1,),) * count, found.first[:count])
    return Layout(found.lengths, found.strides[:count], found.first[:count])


def _ones_of(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Strides that number the elements in order."""
    return tuple(math.prod(lengths[axis + 1 :]) for axis in range(len(lengths)))


def stages_of(axes: Axes) -> list[Stage]:
    """The stages: the first on the operands, each further one on the states of the one before."""
    stages = [_stage(axes)]
    while stages[-1].parts > 1:
        last = stages[-1]
        by_output, by_part = last.of_result
        kept = Layout((last.axes.outputs,), ((by_output,),), (0,))
        stages.append(_stage(Axes(kept, Layout((last.parts,), ((by_part,),), (0,)))))
    return stages


def _stage(axes: Axes) -> Stage:
    outputs, length = axes.outputs, axes.length
    kept_step, step = abs(axes.kept.strides[0][-1]), abs(axes.reduced.strides[0][-1])
    if outputs >= _FEW and (length <= _FEW or kept_step < step):
        threads = 0
        chunk = max(_OF_A_THREAD, -(-length // _MOST_Y))
    else:
        threads = WARP if length <= _OF_A_WARP else BLOCK
        chunk = _OF_A_WARP if threads == WARP else _OF_A_BLOCK
    rows = ROWS if threads == WARP and length <= _SHORT_ROW and outputs >= _MANY_ROWS else 1
    return Stage(axes, _class(axes, threads, rows), chunk, -(-length // chunk))


def alike(axes: Axes, stage: Stage) -> Stage:
    """A stage on other operands that combines the same elements in the same order as `stage`."""
    assert axes.outputs == stage.axes.outputs
    assert axes.length == stage.axes.length
    return Stage(axes, _class(axes, stage.kind.threads, stage.kind.rows), stage.chunk, stage.parts)


def _class(axes: Axes, threads: int, rows: int) -> StageClass:
    steps = tuple(
        (_known(kept[-1]), _known(reduced[-1]))
        for kept, reduced in zip(axes.kept.strides, axes.reduced.strides, strict=True)
    )
    ranks = len(axes.kept.lengths), len(axes.reduced.lengths)
    return StageClass(threads, rows, *ranks, _reach(axes) >= MOST_SHORT, steps)


def _known(step: int) -> int | None:
    return step if step in (0, 1) else None


def _reach(axes: Axes) -> int:
    """The largest number that indices reach."""
    found = axes.outputs * axes.length
    for kept, reduced in zip(axes.kept.strides, axes.reduced.strides, strict=True):
        lengths = (*axes.kept.lengths, *axes.reduced.lengths)
        both = zip((*kept, *reduced), lengths, strict=True)
        found = max(found, sum(abs(step) * (length - 1) for step, length in both))
    return found
