"""Floor 4, scans. A plan: a running sum or product of arrays of one layout, on a device.

A few long rows are cut into parts: the totals of parts are scanned first, in the same way, and then
each part from the total before it. The shape alone decides the cut, so the order of additions is
always the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cudasync.array.allocation import DEAD, reap
from cudasync.array.elementwise.layouts import of_now, raise_if_over
from cudasync.array.elementwise.operations import cast_to
from cudasync.array.elementwise.results import new_result, result_over
from cudasync.array.expressions.layout import MOST_SHORT, Layout, collapsed
from cudasync.array.memory.pool import Scratches, Source
from cudasync.array.scans.kernel import Pass, kernel_name, source
from cudasync.array.steps.compilation import kernel_of
from cudasync.array.steps.step import Step
from cudasync.driver.interchange.dlpack_export import LENT
from cudasync.engine.replay.tape import rounds

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.array.elementwise.layouts import Layout as ArrayLayout
    from cudasync.array.scans.request import Request

_dead = DEAD.items
_BLOCK = 256
_PART = 128
# With this many rows, each gets a single thread.
_MANY_ROWS = 4096


class DevicePlan:
    """The plan of the scan that `request` describes."""

    __slots__ = (
        "_device",
        "_source",
        "_steps",
        "_successor",
        "_token",
        "operand",
        "request",
        "result",
    )

    def __init__(self, request: Request, operand: ArrayLayout, result: ArrayLayout) -> None:
        self.request = request
        self.operand = operand
        self.result = result
        self._device = result.device
        self._successor: DevicePlan | None = None
        # Totals of parts, then of parts of these totals and so on; then back to the results.
        self._steps: list[tuple[Step, Scratches | None]] = []
        if operand.size:
            self._prepare()

    def _prepare(self) -> None:
        """Get the kernels, in the current life of the context."""
        # Read the token first: if a reset comes in between, the plan is never used.
        self._token = self._device.context.token
        raise_if_over(self.operand, self.result)
        axis = self.request.axis
        operand, result = self.operand, self.result
        others = [i for i in range(len(operand.shape)) if i != axis]
        lengths = tuple(operand.shape[i] for i in others)
        both = (operand.element_strides, result.element_strides)
        kept = collapsed(lengths, [tuple(each[i] for i in others) for each in both])
        if not kept.lengths:
            kept = Layout((1,), ((1,), (1,)), kept.first)
        rows = math.prod(kept.lengths)
        steps: list[tuple[Step, Scratches | None]] = []
        self._add(steps, kept, operand.shape[axis], (both[0][axis], both[1][axis]), rows, True)
        self._steps = steps
        self._source = Source(self._device, result.nbytes)

    def _add(
        self,
        steps: list[tuple[Step, Scratches | None]],
        kept: Layout,
        length: int,
        along: tuple[int, int],
        rows: int,
        is_whole: bool,
    ) -> None:
        """The steps that scan rows like these: the array itself if `is_whole`, else totals."""
        request = self.request
        chunk = length if rows >= _MANY_ROWS else min(length, _PART)
        parts = -(-length // chunk)
        dtype = self.operand.dtype if is_whole else request.found
        by_rows = rows >= 32 and abs(kept.strides[0][-1]) < abs(along[0])
        lengths = (*kept.lengths, length + 1)
        reach = max(
            rows * (length + 1),
            *(
                sum(abs(step) * n for step, n in zip((*steps_of, last), lengths, strict=True))
                for steps_of, last in zip(kept.strides, along, strict=True)
            ),
        )
        is_wide = reach + _BLOCK >= MOST_SHORT

        def step(*, has_carry: bool, gives_totals: bool) -> Step:
            result = request.result if is_whole and not gives_totals else request.found
            rank = len(kept.lengths)
            reduction, found = request.reduction, request.found
            kind = Pass(
                reduction, dtype, found, result, rank, by_rows, is_wide, has_carry, gives_totals
            )
            before = int(request.has_initial and is_whole)
            numbers = [rows, parts, length, chunk, before, *kept.lengths]
            signed = [*kept.strides[0], along[0], *kept.strides[1], along[1]]
            letter = "Q" if is_wide else "I"
            packed = [(each, letter) for each in numbers]
            packed += [(each, letter.lower()) for each in signed]
            sizes = (dtype.itemsize, *([0] if has_carry else []), result.itemsize)
            places = (kept.first[0], *([0] if has_carry else []), kept.first[1])
            first = [at * size for at, size in zip(places, sizes, strict=True)]
            if gives_totals:
                first[-1] = 0
            return Step(
                f"cumulative_{reduction.name}",
                self._device,
                kernel_of(source(kind), kernel_name(kind), self._device),
                grid=(-(-rows * parts // _BLOCK),),
                block=(_BLOCK,),
                first=first,
                numbers=packed,
            )

        if parts == 1:
            steps.append((step(has_carry=False, gives_totals=False), None))
            return
        totals = Scratches(self._device, rows * parts * request.found.itemsize)
        steps.append((step(has_carry=False, gives_totals=True), totals))
        inner = Layout((rows,), ((parts,), (parts,)), (0, 0))
        self._add(steps, inner, parts, (1, 1), rows, False)
        steps.append((step(has_carry=True, gives_totals=False), None))

    def _renewed(self, *arrays: Any) -> DevicePlan:
        """The same plan, after a reset of the device. Other threads may still use this one.

        Raises ClosedError if one of these arrays was lost in the reset.
        """
        raise_if_over(*arrays)
        found = self._successor
        if found is None or found._token is not self._device.context.token:
            found = self._successor = DevicePlan(
                self.request, of_now(self.operand), of_now(self.result)
            )
        return found

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """Push the scan; returns a new array with its result, at once. `frame` is the place."""
        if _dead or LENT:
            reap()
        result = self.result
        if not self._steps:
            made = new_result(result)
            self._filled(made, frame)
            return made
        if self._token is not self._device.context.token:
            return self._renewed(*operands)(operands, frame)
        made = result_over(self._source.take(operands, rounds(), len(self._steps) - 1), result)
        self._scanned(operands, made, frame, is_new=True)
        return made

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> None:
        """Push the scan, to a contiguous array apart from the operand."""
        if _dead or LENT:
            reap()
        if not self._steps:
            self._filled(target, frame)
        elif self._token is not self._device.context.token:
            self._renewed(*operands, target).into(operands, target, frame)
        else:
            self._scanned(operands, target, frame, is_new=False)

    def _filled(self, target: Any, frame: FrameType) -> None:
        """Fill `target` with the start value of a scan."""
        if self.result.size:
            cast_to(self.result.dtype).into((self.request.of_nothing,), target, frame)

    def _scanned(
        self, operands: tuple[Any, ...], made: Any, frame: FrameType, *, is_new: bool
    ) -> None:
        (operand,) = operands
        left = [operand]
        deep = len(self._steps) // 2
        for step, scratches in self._steps[:deep]:
            assert scratches is not None
            totals = scratches.take((left[-1],), rounds())
            step((left[-1],), totals, frame, is_new=True)
            left.append(totals)
        carry: tuple[Any, ...] = ()
        for at, (step, _) in enumerate(self._steps[deep:]):
            of = left[deep - at]
            # Totals are scanned into memory of their own: other threads of the pass may yet read
            # the totals.
            scratches = self._steps[deep - at - 1][1] if at < deep else None
            target = made if scratches is None else scratches.take((of, *carry), rounds())
            step((of, *carry), target, frame, is_new=is_new or target is not made)
            carry = (target,)
