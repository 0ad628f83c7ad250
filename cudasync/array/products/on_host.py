"""Floor 4, products. A product on the CPU: NumPy's matmul in a host op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.dtypes.supported import FLOAT16, FLOAT32
from cudasync.array.steps.on_host import computed, computed_into

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.products.problem import Problem


class HostPlan:
    """The plan of the product that `problem` describes."""

    __slots__ = ("problem", "result")

    def __init__(self, problem: Problem, operands: Sequence[Layout], result: Layout) -> None:
        self.problem = problem
        self.result = result

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """Push the product; returns a new array with its result, at once."""
        return computed("matmul", operands, self.result, self._run)

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> None:
        """Push the product, to a contiguous array apart from the operands."""
        computed_into("matmul", operands, target, self._run)

    def _run(
        self,
        left: np.ndarray[Any, Any],
        right: np.ndarray[Any, Any],
        target: np.ndarray[Any, Any],
    ) -> None:
        dtype = FLOAT32 if self.problem.dtype == FLOAT16 else self.problem.dtype
        first, second = left.astype(dtype, copy=False), right.astype(dtype, copy=False)
        # Not with `out=`: NumPy refuses it if the operands are vectors.
        target[...] = np.matmul(first, second)
