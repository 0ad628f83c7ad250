"""Floor 4, products. A product of arrays: it finds the plan for them, or makes it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.dtypes.supported import supported
from cudasync.array.elementwise.layouts import contiguous
from cudasync.array.elementwise.operation import NotAnOperand, fits
from cudasync.array.elementwise.target import check_target, delivered
from cudasync.array.host.memory import CPU
from cudasync.array.memory.limits import check_size
from cudasync.array.products.on_host import HostPlan
from cudasync.array.products.plan import DevicePlan
from cudasync.array.products.problem import dtype_of, problem_of
from cudasync.driver.arguments.remedies import described

if TYPE_CHECKING:
    from types import FrameType

    from cudasync.array.elementwise.layouts import Layout

# The number of pairs of layouts for which plans are kept.
_MOST_PLANS = 512

_plans: dict[Any, DevicePlan | HostPlan] = {}


def product(left: Any, right: Any, frame: FrameType) -> Any:
    """A new array with the matrix product; pushed at once, with `frame` as the place of the push.

    TypeError unless both are arrays of numbers, ValueError for shapes that do not fit and for two
    devices, MemoryError for more than the device holds: all before anything is pushed.
    """
    return _plan(left, right)((left, right), frame)


def product_into(left: Any, right: Any, target: Any, frame: FrameType) -> Any:
    """Write the product to `target`, which must have its dtype and shape; returns `target`."""
    return delivered(_plan(left, right), (left, right), target, "matmul", frame)


def _plan(left: Any, right: Any) -> DevicePlan | HostPlan:
    for each in (left, right):
        if not hasattr(type(each), "__cudasync_plan__"):
            raise _no_operand(each)
    key = (left.layout, right.layout)
    plan = _plans.get(key)
    if plan is None:
        made = _planned(left, right)
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        plan = _plans[key] = made
    return plan


def _no_operand(operand: Any) -> TypeError:
    if isinstance(operand, np.ndarray):
        return TypeError("matmul takes cudasync's arrays: make one with xp.asarray(...)")
    return NotAnOperand(f"matmul takes arrays, not {described(operand)}")


def check_pair(left: Layout, right: Layout, name: str) -> None:
    """ValueError for arrays of two devices, TypeError for dtypes without a product."""
    if left.device != right.device:
        raise ValueError(
            f"{name} takes arrays on one device, not on {left.device!r} and {right.device!r}: "
            "move one with x.to_device(...)"
        )
    dtype_of(supported(left.dtype), supported(right.dtype), name)


def check_out(target: Any, shape: tuple[int, ...], left: Layout, right: Layout, name: str) -> None:
    """Raise for a target that cannot take the product of this shape; `name` is for the message."""
    check_target(target, left.device, name)
    fits(target, dtype_of(supported(left.dtype), supported(right.dtype), name), shape, name)


def check_result(shape: tuple[int, ...], left: Layout, right: Layout) -> None:
    """MemoryError for a product of this shape that the arrays' device cannot hold."""
    if left.device is not CPU:
        dtype = dtype_of(left.dtype, right.dtype)
        check_size(shape, math.prod(shape) * dtype.itemsize, left.device)


def _planned(left: Any, right: Any) -> DevicePlan | HostPlan:
    layouts = left.layout, right.layout
    check_pair(*layouts, "matmul")
    problem = problem_of(*layouts)
    device = left.device
    result = contiguous(left.__cudasync_result__, problem.dtype, problem.result_shape, device)
    if device is CPU:
        return HostPlan(problem, layouts, result)
    check_result(result.shape, *layouts)
    return DevicePlan(problem, layouts, result)
