"""Floor 4, products. A product by cuBLAS as a step, with everything but addresses worked out.

It is a device op like a launch of our own. A recording takes our own kernel instead. A node of a
graph may be aimed at other memory, but work that cuBLAS enqueues may not. A graph's launch also has
no stream whose workspace it could use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.current import engine as current_engine
from cudasync.engine.op import OpKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.array.steps.step import Step
    from cudasync.driver import Device, Stream
    from cudasync.driver.blas import Blas, Gemm


class BlasStep:
    """`gemm` computes the transposed product: its first factor is the right operand. `own` makes
    the step of our own kernel, at the first recording."""

    __slots__ = ("_blas", "_device", "_gemm", "_make_own", "_own")

    def __init__(self, blas: Blas, gemm: Gemm, device: Device, own: Callable[[], Step]) -> None:
        self._blas = blas
        self._gemm = gemm
        self._device = device
        self._make_own = own
        self._own: Step | None = None

    def __call__(
        self, operands: tuple[Any, ...], result: Any, frame: FrameType, *, is_new: bool = False
    ) -> None:
        """Push it, as `Step` is pushed: reads the operands, overwrites the result."""
        engine = current_engine()
        if engine.mode == "recording":
            own = self._own
            if own is None:
                # Two threads make equal steps.
                own = self._own = self._make_own()
            own(operands, result, frame, is_new=is_new)
            return
        left, right = operands
        blas, gemm = self._blas, self._gemm

        def enqueue(stream: Stream) -> None:
            # The function keeps the arrays alive until it is issued.
            blas.multiply(gemm, right.ptr, left.ptr, result.ptr, stream)

        engine._push(
            enqueue,
            OpKind.KERNEL,
            reads=(left.region, right.region),
            writes=(result.region,),
            name="matmul",
            device=self._device,
            kernel="cuBLAS",
        )
