"""Floor 4, elementwise. An operation: it finds the plan for its operands, or makes it.

Operands are arrays, all on one device, Python's numbers and NumPy's scalars. Wrong operands are a
TypeError or ValueError before anything is pushed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.dtypes.promotion import WEAK, in_range
from cudasync.array.dtypes.supported import supported
from cudasync.array.elementwise import overlap
from cudasync.array.elementwise.expression_builder import Number, leaf
from cudasync.array.elementwise.layouts import contiguous
from cudasync.array.expressions.layout import broadcast_shapes
from cudasync.array.expressions.tree import Scalar, leaves
from cudasync.array.memory.limits import check_size
from cudasync.driver.arguments.remedies import described

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.elementwise.expression_builder import Operand
    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.expressions.tree import Expression
    from cudasync.engine import Op

    Build = Callable[[Sequence[Operand]], Expression]

# The number of combinations of layouts for which an operation keeps plans.
_MOST_PLANS = 512


class NotAnOperand(TypeError):
    """An object that is no operand: Python may ask its type for the reflected operation."""


class Operation:
    """`build` makes the expression for operands of given dtypes. Any number of threads may call an
    operation at once. Its ops are named for their computation, or by `name` if the user gave
    that.

    With `by_peers` it only has `into`, which also takes operands of other devices. The caller has
    enabled the peer access of the target's device to them."""

    __slots__ = ("_by_peers", "_into", "_is_named", "build", "name", "plans")

    def __init__(
        self, name: str, build: Build, *, is_named: bool = False, by_peers: bool = False
    ) -> None:
        self._is_named = is_named
        self._by_peers = by_peers
        self.name = name
        self.build = build
        # By the layouts of arrays and the types of numbers. Any thread writes: two threads make
        # equal plans.
        self.plans: dict[Any, Any] = {}
        self._into: dict[Any, Any] = {}

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """A new array with the result; pushed at once, with `frame` as the place of the push."""
        key = key_of(operands)
        plan = self.plans.get(key) or self._planned(operands, None, self.plans, key)
        return plan(operands, frame)

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> Op | None:
        """Write the result to an array of its dtype and shape. Overlaps are safe: the value is as
        if the result was computed before anything is written. Returns the op that writes it."""
        writable(target, self.name)
        key = (*key_of(operands), target.layout)
        plan = self._into.get(key) or self._planned(operands, target, self._into, key)
        if not overlap.is_apart(plan.operands, plan.result, operands, target):
            return COPY.into((self(operands, frame),), target, frame)
        op: Op | None = plan.into(operands, target, frame)
        return op

    def tree(self, operands: tuple[Any, ...]) -> Expression:
        """The expression for such operands; raises as a call would for their dtypes."""
        return self.build([kind_of(each, self.name) for each in operands])

    def _planned(
        self, operands: tuple[Any, ...], target: Any, plans: dict[Any, Any], key: Any
    ) -> Any:
        for each in operands:
            trace = getattr(type(each), "__cudasync_trace__", None)
            if trace is not None:
                return trace(self, operands, target)
        tree = self.tree(operands)
        for each in leaves(tree):
            if isinstance(each, Scalar):
                in_range(each.dtype, operands[each.position])
        layouts: list[Layout | None] = [
            each.layout if hasattr(type(each), "__cudasync_plan__") else None for each in operands
        ]
        arrays = [each for each in layouts if each is not None]
        if target is not None:
            arrays.append(target.layout)
        model = (
            target
            if target is not None
            else next(
                each for each, layout in zip(operands, layouts, strict=True) if layout is not None
            )
        )
        if not self._by_peers:
            _on_one_device(arrays, self.name)
        shape = broadcast_shapes(*(each.shape for each in layouts if each is not None))
        if target is None:
            result = contiguous(model.__cudasync_result__, tree.dtype, shape, arrays[0].device)
            check_size(shape, result.nbytes, result.device)
        else:
            fits(target, tree.dtype, broadcast_shapes(shape, target.shape), self.name)
            result = target.layout
        plan = model.__cudasync_plan__(tree, layouts, result)
        if self._is_named:
            plan.name = self.name
        if len(plans) >= _MOST_PLANS:
            plans.clear()
        plans[key] = plan
        return plan


def key_of(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The layouts of arrays and the types of numbers."""
    return tuple(
        [
            each.layout if hasattr(type(each), "__cudasync_plan__") else type(each)
            for each in operands
        ]
    )


def kind_of(operand: Any, name: str) -> Operand:
    """The kind of `operand` of the operation `name`; TypeError for an object that is no operand."""
    if hasattr(type(operand), "__cudasync_plan__"):
        return supported(operand.dtype)
    if type(operand) in WEAK:
        return type(operand)
    if isinstance(operand, np.generic):
        return Number(supported(operand.dtype))
    if type(operand) is complex:
        raise NotImplementedError("complex numbers are not supported: keep two arrays of floats")
    if isinstance(operand, np.ndarray):
        raise TypeError(
            f"{name} takes cudasync's arrays and numbers: make an array with xp.asarray(...)"
        )
    raise NotAnOperand(f"{name} takes arrays and numbers, not {described(operand)}")


def _on_one_device(layouts: Sequence[Layout], name: str) -> None:
    for each in layouts:
        if each.device != layouts[0].device:
            raise ValueError(
                f"{name} takes arrays on one device, not on {layouts[0].device!r} and "
                f"{each.device!r}: move one with x.to_device(...)"
            )


def writable(target: Any, name: str) -> None:
    """TypeError unless it is an array of ours, ValueError if it must not be written."""
    if not hasattr(type(target), "__cudasync_plan__"):
        raise TypeError(f"out= of {name} must be an array, not {described(target)}")
    if target.is_read_only:
        raise ValueError(f"the out= array of {name} is read-only: give x.copy()")


def fits(target: Any, dtype: DType, shape: tuple[int, ...], name: str) -> None:
    """TypeError for an array of another dtype than the result's; ValueError for another shape, and
    if elements share memory."""
    if dtype != target.dtype:
        raise TypeError(
            f"{name} gives {dtype} here, the out= array has {target.dtype}: cast with xp.astype"
        )
    if shape != target.shape:
        raise ValueError(f"{name} gives shape {shape} here, the out= array has {target.shape}")
    if not target.layout.is_at_own_place():
        raise ValueError(f"elements of the out= array of {name} share memory: give x.copy()")


def _same(operands: Sequence[Operand]) -> Expression:
    (operand,) = operands
    assert isinstance(operand, np.dtype)
    return leaf(0, operand, operand)


COPY = Operation("copy", _same)
