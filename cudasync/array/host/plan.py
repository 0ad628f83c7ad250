"""Floor 4, host. A plan on the CPU: an expression for operands of given layouts as a host op.

NumPy releases the GIL in its loops, so such ops overlap each other and ops of devices.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from numpy import errstate

from cudasync.array.allocation import DEAD, reap
from cudasync.array.dtypes.promotion import in_range
from cudasync.array.elementwise.results import result_over
from cudasync.array.expressions.on_host import (
    QUIET,
    compute_aloud,
    direct,
    number,
    quiet,
    quietly,
)
from cudasync.array.expressions.tree import Scalar, leaves, name_of
from cudasync.array.host.memory import SmallBytes, bytes_of_result, is_small, view_of
from cudasync.engine.current import engine as current_engine
from cudasync.engine.current import maybe_engine
from cudasync.engine.hazards.interval_map import Gapped
from cudasync.engine.host import inline_execution
from cudasync.engine.op import OpKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.expressions.tree import Expression
    from cudasync.engine import Op
    from cudasync.engine.hazards.interval_map import Region

_dead = DEAD.items
_NOTHING = (_dead, None)


class HostPlan:
    """`operands` has the layout of each array, and None for a number."""

    __slots__ = (
        "_are_arrays",
        "_is_pair",
        "_is_short",
        "_last",
        "_numbers",
        "_ufunc",
        "name",
        "operands",
        "result",
        "tree",
    )

    def __init__(self, tree: Expression, operands: Sequence[Layout | None], result: Layout) -> None:
        self.tree = tree
        self.operands = tuple(operands)
        self.result = result
        self.name = name_of(tree)
        self._are_arrays = [each is not None for each in operands]
        # Set if the tree is one ufunc of the operands in order.
        self._ufunc: Any = direct(tree, len(self.operands))
        self._numbers = [each for each in leaves(tree) if isinstance(each, Scalar)]
        # By position, the last number given to the ufunc, and NumPy's scalar for it: constants
        # recur.
        self._last: dict[int, tuple[Any, Any]] = {}
        # The usual operation on few numbers: one ufunc, and a result with reused memory.
        self._is_short = self._ufunc is not None and is_small(result)
        self._is_pair = self._are_arrays == [True, True]

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """Push the operation; returns a new array with its result, at once."""
        result = self.result
        engine = maybe_engine() or current_engine()
        if not self._is_short or not engine._is_direct or result.size > engine._most_at_once:
            made = result_over(bytes_of_result(result), result)
            self.into(operands, made, frame)
            return made
        # `into`, inlined: a call here costs as much as the addition.
        if _dead:
            reap()
        try:
            context = QUIET.pop()
        except IndexError:
            context = quiet()
        memory = SmallBytes(result)
        target = memory.known[1]
        reads: tuple[Region, ...]
        if self._is_pair:
            left, right = operands
            known, x = left._allocation.known
            if known is not left._layout:
                x = view_of(left)
            known, y = right._allocation.known
            if known is not right._layout:
                y = view_of(right)
            run = partial(context.run, self._ufunc, x, y, out=target)
            reads = (left.region, right.region)
        else:
            reads, values = self._taken(operands)
            run = partial(context.run, self._ufunc, *values, out=target)
        made = result_over(memory, result, memory.region)
        op = inline_execution.push(engine, run, (reads, (), (memory.region,)), self.name, frame)
        if op.finished and op.failure is None:
            # Else a worker has it, which will run the op in this context.
            QUIET.append(context)
        return made

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> Op | None:
        """Push the operation with `target`, which has the result's layout, as its result; returns
        the op, or None if there is nothing to do."""
        if _dead:
            reap()
        if not self.result.size:
            return None
        reads, values = self._taken(operands)
        result, region = view_of(target), target.region
        if self._ufunc is None:
            run = partial(quietly, compute_aloud, self.tree, values, result)
        else:
            run = partial(quietly, partial(self._ufunc, *values, out=result))
        engine = current_engine()
        # In this order: a recorder is not direct, and has no `_most_at_once`.
        if engine._is_direct and self.result.size <= engine._most_at_once:
            is_gapped = region.__class__ is Gapped
            regions = (reads, (region,), ()) if is_gapped else (reads, (), (region,))
            return inline_execution.push(engine, run, regions, self.name, frame)
        if region.__class__ is Gapped:
            reads += (region,)
        return engine._push(run, OpKind.HOST, reads=reads, writes=(region,), name=self.name)

    def _taken(self, operands: tuple[Any, ...]) -> tuple[tuple[Region, ...], list[Any]]:
        """The regions of the array operands, and all operands in the form for the call.

        OverflowError for an integer that its dtype does not hold.
        """
        reads: tuple[Region, ...] = ()
        values: list[Any] = []
        for each, is_array in zip(operands, self._are_arrays, strict=True):
            if is_array:
                reads += (each.region,)
                each = view_of(each)
            values.append(each)
        for leaf in self._numbers:
            at = leaf.position
            given, value = self._last.get(at, _NOTHING)
            if given is not operands[at]:
                in_range(leaf.dtype, operands[at])
                value = operands[at]
                if self._ufunc is not None:
                    with errstate(all="ignore"):
                        value = number(leaf, value)
                    self._last[at] = operands[at], value
            values[at] = value
        return reads, values
