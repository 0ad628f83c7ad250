"""Floor 4, products. A plan: a product of operands of given layouts, on a device.

Everything that does not depend on addresses is computed when the plan is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.allocation import DEAD, reap
from cudasync.array.elementwise.layouts import of_now, raise_if_over
from cudasync.array.elementwise.operations import cast_to
from cudasync.array.elementwise.results import new_result, result_over
from cudasync.array.memory.pool import Source
from cudasync.array.products import thin, tiled
from cudasync.array.products.blas_step import BlasStep
from cudasync.array.products.kernel_choice import chosen, library_call
from cudasync.array.steps.compilation import kernel_of
from cudasync.array.steps.step import Step
from cudasync.driver.interchange.dlpack_export import LENT
from cudasync.engine.replay.tape import rounds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.products.problem import Problem

_dead = DEAD.items

# A product and its sum are rounded once: twice as fast on hardware, and nearer to the true sum.
_OPTIONS = ("--fmad=true",)


class DevicePlan:
    """`operands` has the layouts of the two arrays."""

    __slots__ = (
        "_device",
        "_source",
        "_step",
        "_successor",
        "_token",
        "operands",
        "problem",
        "result",
    )

    def __init__(self, problem: Problem, operands: Sequence[Layout], result: Layout) -> None:
        self.problem = problem
        self.operands = tuple(operands)
        self.result = result
        self._device = result.device
        self._successor: DevicePlan | None = None
        if result.size and problem.depth:
            self._prepare()

    def _prepare(self) -> None:
        """Get cuBLAS or the kernel, in the current life of the context."""
        # Read the token first: if a reset comes in between, the plan is never used.
        self._token = self._device.context.token
        raise_if_over(*self.operands, self.result)
        call = library_call(self.problem, self._device)
        self._step: Step | BlasStep
        if call is None:
            self._step = self._kernel_step()
        else:
            self._step = BlasStep(*call, self._device, self._kernel_step)
        self._source = Source(self._device, self.result.nbytes)

    def _kernel_step(self) -> Step:
        """The step of our own kernel."""
        choice, device, problem = chosen(self.problem), self._device, self.problem
        kind = choice.kind
        name = f"matmul_{problem.dtype.name}"
        room = tiled if isinstance(kind, tiled.Tiling) else thin
        text = room.source(kind, name)
        letter = "Q" if kind.is_wide else "I"
        sizes = [each.dtype.itemsize for each in (*self.operands, self.result)]
        return Step(
            "matmul",
            device,
            kernel_of(text, name, device, _OPTIONS),
            grid=choice.grid,
            block=choice.block,
            first=[at * size for at, size in zip(choice.first, sizes, strict=True)],
            numbers=[(v, letter if v >= 0 else letter.lower()) for v in choice.numbers],
        )

    def _renewed(self, *arrays: Any) -> DevicePlan:
        """The same plan, after a reset of the device. Other threads may still use this one.

        Raises ClosedError if one of these arrays was lost in the reset.
        """
        raise_if_over(*arrays)
        found = self._successor
        if found is None or found._token is not self._device.context.token:
            operands = [of_now(each) for each in self.operands]
            found = self._successor = DevicePlan(self.problem, operands, of_now(self.result))
        return found

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """Push the product; returns a new array with its result, at once. `frame` is the place."""
        if _dead or LENT:
            reap()
        if not self.result.size or not self.problem.depth:
            made = new_result(self.result)
            self._cleared(made, frame)
            return made
        if self._token is not self._device.context.token:
            return self._renewed(*operands)(operands, frame)
        made = result_over(self._source.take(operands, rounds()), self.result)
        self._step(operands, made, frame, is_new=True)
        return made

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> None:
        """Push the product, to a contiguous array apart from the operands."""
        if _dead or LENT:
            reap()
        if not self.result.size or not self.problem.depth:
            self._cleared(target, frame)
        elif self._token is not self._device.context.token:
            self._renewed(*operands, target).into(operands, target, frame)
        else:
            self._step(operands, target, frame)

    def _cleared(self, target: Any, frame: FrameType) -> None:
        """Write the empty sums: zeros."""
        if self.result.size:
            cast_to(self.result.dtype).into((0,), target, frame)
