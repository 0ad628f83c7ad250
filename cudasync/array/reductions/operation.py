"""Floor 4, reductions. A reduction of arrays: it finds the plan for them, or makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.dtypes.supported import FLOAT16, FLOAT32, supported
from cudasync.array.elementwise.layouts import contiguous
from cudasync.array.elementwise.operation import fits
from cudasync.array.elementwise.target import check_target, delivered
from cudasync.array.expressions.layout import broadcast_shapes
from cudasync.array.host.memory import CPU
from cudasync.array.memory.limits import check_size
from cudasync.array.reductions.on_host import HostPlan
from cudasync.array.reductions.plan import DevicePlan
from cudasync.array.reductions.request import requested, shape_left
from cudasync.array.reductions.table import REDUCTIONS
from cudasync.driver.arguments.remedies import described

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.array.dtypes.supported import DType

# The number of combinations of layouts for which plans are kept.
_MOST_PLANS = 2048

_plans: dict[Any, DevicePlan | HostPlan] = {}


def reduced(
    name: str,
    operands: tuple[Any, ...],
    frame: FrameType,
    *,
    axes: tuple[int, ...],
    keeps_dims: bool = False,
    dtype: DType | None = None,
    correction: float = 0,
    out: Any = None,
) -> Any:
    """Reduce arrays of one device to a new array, or to `out`; pushed at once, with `frame` as the
    place of the push.

    `axes` count from the front of the shape to which all operands are broadcast.
    """
    layouts = tuple([each.layout for each in operands])
    key = (name, layouts, axes, keeps_dims, dtype, correction)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        plan = _plans[key] = _planned(*key, operands[0])
    if out is None:
        return plan(operands, frame)
    return delivered(plan, operands, out, name, frame)


def _planned(
    name: str,
    layouts: tuple[Any, ...],
    axes: tuple[int, ...],
    keeps_dims: bool,
    dtype: DType | None,
    correction: float,
    model: Any,
) -> DevicePlan | HostPlan:
    devices = list(dict.fromkeys(each.device for each in layouts))
    if len(devices) > 1:
        raise ValueError(
            f"{name} takes arrays on one device, not on {devices[0]!r} and {devices[1]!r}: "
            "move one with x.to_device(...)"
        )
    request = requested(
        REDUCTIONS[name],
        broadcast_shapes(*(each.shape for each in layouts)),
        [supported(each.dtype) for each in layouts],
        axes=axes,
        keeps_dims=keeps_dims,
        dtype=dtype,
        correction=correction,
    )
    kind = model.__cudasync_result__
    result = contiguous(kind, request.finish.dtype, request.result_shape, devices[0])
    if devices[0] is CPU:
        return HostPlan(request, layouts, result)
    check_size(result.shape, result.nbytes, devices[0])
    return DevicePlan(request, layouts, result)


def variance(
    name: str,
    x: Any,
    frame: FrameType,
    *,
    axes: tuple[int, ...],
    keeps_dims: bool,
    correction: float,
    out: Any = None,
) -> Any:
    """`var` or `std`: the mean first, then the squared differences of the elements from it."""
    REDUCTIONS[name].accept(supported(x.dtype))
    if out is not None:
        # Checked before the mean is pushed.
        check_target(out, x.device, name)
        fits(out, x.dtype, shape_left(x.shape, axes, keeps_dims=keeps_dims), name)
    of = FLOAT32 if x.dtype == FLOAT16 else x.dtype
    mean = reduced("mean", (x,), frame, axes=axes, keeps_dims=True, dtype=of)
    return reduced(
        name,
        (x, mean),
        frame,
        axes=axes,
        keeps_dims=keeps_dims,
        dtype=x.dtype,
        correction=correction,
        out=out,
    )


def array(x: Any, name: str) -> Any:
    """`x`, if it is an array that computes; TypeError otherwise."""
    if hasattr(type(x), "__cudasync_trace__"):
        raise TypeError(f"an elementwise function sees one element: call {name} outside it")
    if not hasattr(type(x), "__cudasync_plan__"):
        raise TypeError(f"{name} takes arrays, not {described(x)}: make one with xp.asarray(...)")
    return x
