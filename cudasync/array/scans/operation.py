"""Floor 4, scans. A scan of an array: it finds the plan for it, or makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.dtypes.supported import supported
from cudasync.array.elementwise.layouts import contiguous
from cudasync.array.elementwise.target import delivered
from cudasync.array.host.memory import CPU
from cudasync.array.memory.limits import check_size
from cudasync.array.scans.plan import DevicePlan
from cudasync.array.scans.request import requested
from cudasync.array.steps.on_host import computed, computed_into

if TYPE_CHECKING:
    from types import FrameType

    import numpy as np

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.scans.request import Request

_MOST_PLANS = 512

_plans: dict[Any, DevicePlan | HostPlan] = {}


class HostPlan:
    """The plan on the CPU: NumPy's accumulation in a host op."""

    __slots__ = ("request", "result")

    def __init__(self, request: Request, result: Layout) -> None:
        self.request = request
        self.result = result

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """Push the scan; returns a new array with its result, at once."""
        return computed(
            f"cumulative_{self.request.reduction.name}", operands, self.result, self._run
        )

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> None:
        """Push the scan, to a contiguous array apart from the operand."""
        computed_into(f"cumulative_{self.request.reduction.name}", operands, target, self._run)

    def _run(self, values: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
        request = self.request
        before = int(request.has_initial)
        lead: tuple[Any, ...] = (slice(None),) * request.axis
        if before:
            target[(*lead, 0)] = request.of_nothing
        assert request.reduction.combine is not None
        running = request.reduction.combine.host.accumulate(  # type: ignore[attr-defined]
            values.astype(request.found, copy=False), axis=request.axis, dtype=request.found
        )
        target[(*lead, slice(before, None))] = running


def scanned(
    name: str,
    x: Any,
    frame: FrameType,
    *,
    axis: int,
    dtype: DType | None,
    has_initial: bool,
    out: Any = None,
) -> Any:
    """A new array with the running `name` ("sum" or "prod") of an array along an axis. It is pushed
    at once, with `frame` as the place of the push. With `out`, the result goes to that array, which
    is returned."""
    layout = x.layout
    key = (name, layout, axis, dtype, has_initial)
    plan = _plans.get(key)
    if plan is None:
        request = requested(
            name, layout.shape, supported(x.dtype), axis=axis, dtype=dtype, has_initial=has_initial
        )
        kind = x.__cudasync_result__
        result = contiguous(kind, request.result, request.result_shape, layout.device)
        if layout.device is CPU:
            plan = HostPlan(request, result)
        else:
            check_size(result.shape, result.nbytes, layout.device)
            plan = DevicePlan(request, layout, result)
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    if out is None:
        return plan((x,), frame)
    return delivered(plan, (x,), out, f"cumulative_{name}", frame)
