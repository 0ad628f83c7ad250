"""Floor 4, reductions. A plan: a reduction of operands of given layouts, on a device.

Everything that does not depend on addresses is computed when the plan is made: the stages, their
kernels, the scratch between them. Running it pushes a launch for each stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.allocation import DEAD, reap
from cudasync.array.elementwise.layouts import of_now, raise_if_over
from cudasync.array.elementwise.operations import cast_to
from cudasync.array.elementwise.results import new_result, result_over
from cudasync.array.expressions.layout import MOST_SHORT, broadcast_strides
from cudasync.array.memory.pool import Scratches, Source
from cudasync.array.reductions.arg_reduction import Finding, is_found
from cudasync.array.reductions.kernel import Job, state_bytes
from cudasync.array.reductions.recorded import note
from cudasync.array.reductions.stage_launch import Stepped, step_for
from cudasync.array.reductions.stages import axes_of, stages_of
from cudasync.array.steps.together import pushed_together
from cudasync.driver.interchange.dlpack_export import LENT
from cudasync.engine.current import engine as current_engine
from cudasync.engine.replay.tape import rounds
from cudasync.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.reductions.request import Request
    from cudasync.array.reductions.stages import Stage

_dead = DEAD.items


class DevicePlan:
    """The plan of the reduction that `request` describes."""

    __slots__ = (
        "_device",
        "_finding",
        "_first",
        "_rest",
        "_source",
        "_successor",
        "_token",
        "operands",
        "request",
        "result",
        "stages",
    )

    def __init__(self, request: Request, operands: Sequence[Layout], result: Layout) -> None:
        self.request = request
        self.operands = tuple(operands)
        self.result = result
        self._device = result.device
        self._successor: DevicePlan | None = None
        # Empty if there is nothing to reduce, or no result.
        self.stages: list[Stage] = []
        # Used instead of the stages, except in a recording.
        self._finding: Finding | None = None
        self._first: Any = None
        if result.size and request.length:
            self._prepare()

    def _prepare(self) -> None:
        """Get the kernels, in the current life of the context."""
        # Read the token first: if a reset comes in between, the plan is never used.
        self._token = self._device.context.token
        raise_if_over(*self.operands, self.result)
        request = self.request
        strides = [
            broadcast_strides(each.shape, each.element_strides, request.shape)
            for each in self.operands
        ]
        axes = axes_of(request.shape, strides, request.axes, in_order=bool(request.reduction.finds))
        self.stages = stages_of(axes)
        self._source = Source(self._device, self.result.nbytes)
        only = self._job(is_first=True, is_last=True)
        if is_found(only, self.stages[0]):
            self._finding = Finding(only, self.stages[0], self._device)
        else:
            self._make_steps()

    def _job(self, *, is_first: bool, is_last: bool) -> Job:
        request = self.request
        return Job(
            request.reduction,
            request.element.dtype,
            tuple(e.dtype for e in self.operands) if is_first else (request.element.dtype,),
            request.element if is_first else None,
            request.finish if is_last else None,
            is_long=request.length >= MOST_SHORT,
        )

    def _make_steps(self) -> None:
        """Make a launch for each stage. Two threads make equal launches."""
        device, last = self._device, len(self.stages) - 1
        steps, scratches = [], []
        for number, stage in enumerate(self.stages):
            job = self._job(is_first=not number, is_last=number == last)
            sizes = [each.dtype.itemsize for each in self.operands] if not number else [0]
            step = step_for(job, stage, sizes, self.request.divisor, device)
            steps.append((step, job, stage))
            if number != last:
                size = stage.axes.outputs * stage.parts * state_bytes(job)
                scratches.append(Scratches(device, size))
        self._rest = list(zip(scratches, steps[1:], strict=True))
        self._first = steps[0]

    def _renewed(self, *arrays: Any) -> DevicePlan:
        """The same plan, after a reset of the device. Other threads may still use this one.

        Raises ClosedError if one of these arrays was lost in the reset.
        """
        raise_if_over(*arrays)
        found = self._successor
        if found is None or found._token is not self._device.context.token:
            operands = [of_now(each) for each in self.operands]
            found = self._successor = DevicePlan(self.request, operands, of_now(self.result))
        return found

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """Push the reduction; returns a new array with its result, at once. `frame` is the
        place."""
        if _dead or LENT:
            reap()
        result = self.result
        if not self.stages:
            made = new_result(result)
            self._filled(made, frame)
            return made
        if self._token is not self._device.context.token:
            return self._renewed(*operands)(operands, frame)
        ahead = len(self._rest) if self._finding is None else 1
        made = result_over(self._source.take(operands, rounds(), ahead), result)
        self._staged(operands, made, frame, is_new=True)
        return made

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> None:
        """Push the reduction, to a contiguous array apart from the operands."""
        if _dead or LENT:
            reap()
        if not self.stages:
            self._filled(target, frame)
        elif self._token is not self._device.context.token:
            self._renewed(*operands, target).into(operands, target, frame)
        else:
            self._staged(operands, target, frame, is_new=False)

    def _filled(self, target: Any, frame: FrameType) -> None:
        """Fill `target` with the result for no elements."""
        result = self.result
        if result.size:
            cast_to(result.dtype).into((self.request.of_nothing,), target, frame)

    def _staged(
        self, operands: tuple[Any, ...], target: Any, frame: FrameType, *, is_new: bool
    ) -> None:
        if self._finding is not None and current_engine().mode != "recording":
            self._finding(operands, target, frame, is_new=is_new)
            return
        if self._first is None:
            self._make_steps()
        first, rest = self._first, self._rest
        if len(rest) == 1:
            scratches, (last, *_) = rest[0]
            if pushed_together(first[0], operands, scratches, last, target, frame):
                return
        for scratches, following in rest:
            left = scratches.take(operands, rounds())
            self._pushed(first, operands, left, frame, is_new=True)
            operands, first = (left,), following
        self._pushed(first, operands, target, frame, is_new=is_new)

    def _pushed(
        self, first: Any, operands: tuple[Any, ...], target: Any, frame: FrameType, *, is_new: bool
    ) -> None:
        step, job, stage = first
        op = step(operands, target, frame, is_new=is_new)
        if op.__class__ is Node:
            note(op, self, Stepped(step, job, stage), operands, target, is_new=is_new)
