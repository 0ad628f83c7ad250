"""Floor 4, host. An expression for operands of given layouts, on the CPU: a host op of NumPy's.

NumPy lets the GIL go in its loops, so such ops run beside each other and beside those of devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy import errstate

from cudasync.array.allocation import DEAD, reap
from cudasync.array.dtypes.promotion import in_range
from cudasync.array.elementwise.results import result_over
from cudasync.array.expressions.on_host import compute, direct
from cudasync.array.expressions.tree import Scalar, leaves, name_of
from cudasync.array.host.memory import bytes_of_result, view_of
from cudasync.engine.current import engine as current_engine
from cudasync.engine.hazards.interval_map import Gapped
from cudasync.engine.host import at_once
from cudasync.engine.op import OpKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.expressions.tree import Expression
    from cudasync.engine import Op
    from cudasync.engine.hazards.interval_map import Region

_dead = DEAD.items


class HostPlan:
    """`operands` has the layout of each array, and None for a number."""

    __slots__ = ("_are_arrays", "_numbers", "_ufunc", "name", "operands", "result", "tree")

    def __init__(self, tree: Expression, operands: Sequence[Layout | None], result: Layout) -> None:
        self.tree = tree
        self.operands = tuple(operands)
        self.result = result
        self.name = name_of(tree)
        self._are_arrays = [each is not None for each in operands]
        # Of one operation on the operands as they are.
        self._ufunc = direct(tree, len(self.operands)) if all(self._are_arrays) else None
        self._numbers = [each for each in leaves(tree) if isinstance(each, Scalar)]

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """Push the operation; a new array with its result, at once."""
        made = result_over(bytes_of_result(self.result), self.result)
        self.into(operands, made, frame)
        return made

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> Op | None:
        """Push the operation with `target`, which has the result's layout, as its result; the op,
        or None where there is nothing to do."""
        if _dead:
            reap()
        if not self.result.size:
            return None
        for leaf in self._numbers:
            in_range(leaf.dtype, operands[leaf.position])
        values: list[Any] = []
        reads: tuple[Region, ...] = ()
        for each, is_array in zip(operands, self._are_arrays, strict=True):
            if is_array:
                reads += (each.region,)
                each = view_of(each)
            values.append(each)
        result, tree, ufunc, region = view_of(target), self.tree, self._ufunc, target.region

        def run() -> None:
            if ufunc is None:
                compute(tree, values, result)
            else:
                with errstate(all="ignore"):
                    ufunc(*values, out=result)

        engine = current_engine()
        # In this order: what records is not direct, and has no such bound.
        if engine._is_direct and self.result.size <= engine._most_at_once:
            is_gapped = region.__class__ is Gapped
            regions = (reads, (region,), ()) if is_gapped else (reads, (), (region,))
            return at_once.push(engine, run, regions, self.name, frame)
        if region.__class__ is Gapped:
            reads += (region,)
        return engine._push(run, OpKind.HOST, reads=reads, writes=(region,), name=self.name)
