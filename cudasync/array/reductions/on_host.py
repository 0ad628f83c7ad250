"""Floor 4, reductions. A reduction on the CPU: NumPy's reduction in a host op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.expressions.on_host import compute
from cudasync.array.expressions.tree import Input
from cudasync.array.steps.on_host import computed, computed_into

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.reductions.request import Request


class HostPlan:
    """The plan of the reduction that `request` describes."""

    __slots__ = ("request", "result")

    def __init__(self, request: Request, operands: Sequence[Layout], result: Layout) -> None:
        self.request = request
        self.result = result

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """Push the reduction; returns a new array with its result, at once."""
        return computed(self.request.reduction.name, operands, self.result, self._run)

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> None:
        """Push the reduction, to a contiguous array apart from the operands."""
        computed_into(self.request.reduction.name, operands, target, self._run)

    def _run(self, *views: np.ndarray[Any, Any]) -> None:
        request, (*operands, target) = self.request, views
        if not request.length:
            target[...] = request.of_nothing
            return
        element = request.element
        values = operands[0]
        if not isinstance(element, Input):
            values = np.empty(request.shape, element.dtype)
            compute(element, operands, values)
        if request.reduction.finds:
            self._found(values, target)
            return
        assert request.reduction.combine is not None
        left = request.reduction.combine.host.reduce(  # type: ignore[attr-defined]
            values, axis=request.axes, dtype=element.dtype, keepdims=request.keeps_dims
        )
        compute(request.finish, [left, request.divisor], target)

    def _found(self, values: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
        """Find places along one axis, or along all."""
        request = self.request
        find = getattr(np, request.reduction.name)
        axis = request.axes[0] if len(request.axes) < values.ndim else None
        target[...] = find(values, axis=axis, keepdims=request.keeps_dims)
