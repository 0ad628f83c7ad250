"""Floor 4, elementwise. `out=`: the array that receives the result of any operation.

An unsuitable array is refused before anything is pushed. The value is the same as without `out=`,
whatever overlaps: as if the result was computed before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.elementwise.operation import COPY, fits, writable

if TYPE_CHECKING:
    from types import FrameType


def check_target(target: Any, device: Any, name: str) -> None:
    """TypeError unless it is an array of ours; ValueError if it is read-only, or on another device
    than the operands; ClosedError if it was lost in a reset of its device."""
    writable(target, name)
    target.form.raise_if_over()
    if target.device != device:
        raise ValueError(
            f"{name} takes arrays on one device, not on {device!r} and {target.device!r}: give "
            "an out= array there, or move the operands with x.to_device(...)"
        )


def delivered(
    plan: Any, operands: tuple[Any, ...], target: Any, name: str, frame: FrameType
) -> Any:
    """`target`, to which the result of a plan will be written.

    The plan writes to it directly if it is contiguous and apart from the operands; else a copy
    does.
    """
    result = plan.result
    check_target(target, result.device, name)
    fits(target, result.dtype, result.shape, name)
    low, high = target.region
    is_shared = any(each.region[0] < high and low < each.region[1] for each in operands)
    if target.is_contiguous and not is_shared:
        plan.into(operands, target, frame)
    else:
        COPY.into((plan(operands, frame),), target, frame)
    return target
