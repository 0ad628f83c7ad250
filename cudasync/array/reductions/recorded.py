"""Floor 4, reductions. A recorded stage, with the methods that passes over a graph call.

It can inline the producer of its input, and then computes each element instead of loading it. The
cut into parts, and the order of combining, stay as they were for the array that is gone. So no bit
of a result changes.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cudasync.array.elementwise.recorded import (
    Placed,
    RecordedOperation,
    held,
    meet,
    memory_of,
    merged,
)
from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.expressions.layout import broadcast_strides
from cudasync.array.expressions.tree import Index, Scalar, leaves, substitute
from cudasync.array.memory.pool import Scratch
from cudasync.array.reductions.stage_launch import Stepped, step_for
from cudasync.array.reductions.stages import alike, axes_of

if TYPE_CHECKING:
    import weakref
    from collections.abc import Sequence

    from cudasync.array.expressions.tree import Expression
    from cudasync.array.reductions.plan import DevicePlan
    from cudasync.driver import Launch


class RecordedReduction:
    """A stage and its operands: arrays by their addresses, then the numbers inside."""

    is_reduction = True

    def __init__(
        self,
        plan: DevicePlan,
        stepped: Stepped,
        operands: Sequence[Any],
        result: Placed,
        arrays: weakref.ref[Any] | None,
    ) -> None:
        self.plan = plan
        self.stepped = stepped
        self.operands = tuple(operands)
        self.result = result
        # As in `RecordedOperation`.
        self._arrays = arrays
        self.name = stepped.job.reduction.name

    @property
    def is_of_the_graph(self) -> bool:
        """True if the recording made the result's memory."""
        return self._arrays is not None

    @property
    def is_temporary(self) -> bool:
        """True if only other nodes can still ask for the result."""
        return self._arrays is not None and self._arrays() is None

    @property
    def regions(self) -> Any:
        """The regions that it only reads, updates, and overwrites."""
        return tuple(dict.fromkeys(each.region for each in self._read)), (), (self.result.region,)

    @property
    def _read(self) -> tuple[Placed, ...]:
        return self.operands[: len(self.stepped.job.operands)]

    def launch(self) -> Launch:
        """Its launch, with addresses packed."""
        return self.stepped.step.packed(self._read, self.result)

    def aimed(self, aim: Any) -> RecordedReduction:
        """The same stage on other memory: see `graph.retargeting`. Its numbers are no arguments,
        because it gets numbers only after arguments are bound."""

        def put(operand: Any) -> Any:
            return operand.aimed(aim) if isinstance(operand, Placed) else operand

        operands = [put(each) for each in self.operands]
        made = RecordedReduction(self.plan, self.stepped, operands, put(self.result), self._arrays)
        made.name = self.name
        return made

    def on_device(self, device: Any) -> RecordedReduction:
        """The same stage by a kernel of another device, at the same addresses."""

        def put(operand: Any) -> Any:
            has_layout = isinstance(operand, Placed) and operand.layout is not None
            return operand.on_device(device) if has_layout else operand

        stepped = self.stepped._replace(step=self.stepped.step.on_device(device))
        operands = [put(each) for each in self.operands]
        made = RecordedReduction(self.plan, stepped, operands, put(self.result), self._arrays)
        made.name = self.name
        return made

    def takes_in(self, other: Any) -> None:
        """None: a reduction is not elementwise, see `reduces`."""

    def reduces(self, other: Any) -> RecordedReduction | None:
        """This stage with `other`, the producer of an operand, inlined; None if that is impossible.

        The operand has the shape that is reduced, so each element is computed once.
        """
        job, request = self.stepped.job, self.plan.request
        if job.element is None or not isinstance(other, RecordedOperation):
            return None
        made, target = other.result, self.result
        mine = [each for each in self._read if meet(each.region, made.region)]
        if not mine or any(e != made or e.layout.shape != request.shape for e in mine):
            return None
        # The kernel may read an element after it has written results, so they must not overlap.
        if any(isinstance(e, Placed) and meet(e.region, target.region) for e in other.operands):
            return None
        # An element in a reduction does not know its index in the whole.
        if any(isinstance(leaf, Index) for leaf in leaves(other.plan.tree)):
            return None
        found = merged(job.element, self.operands, other)
        if found is None:
            return None
        return self._computing(*_arrays_first(*found), f"{other.name}, {self.name}")

    def _computing(
        self, element: Expression, operands: list[Any], name: str
    ) -> RecordedReduction | None:
        """This stage with another element; the arrays come first among its operands."""
        plan, request, (_, job, stage) = self.plan, self.plan.request, self.stepped
        layouts = [each.layout for each in operands if isinstance(each, Placed)]
        values = operands[len(layouts) :]
        dtypes = {e.position: e.dtype for e in leaves(element) if isinstance(e, Scalar)}
        scalars = tuple(dtypes[at] for at in range(len(layouts), len(operands)))
        if not layouts or not all(map(_fits, values, scalars)):
            return None

        def rows(some: Sequence[Any]) -> list[tuple[int, ...]]:
            return [broadcast_strides(e.shape, e.element_strides, request.shape) for e in some]

        # In the memory order of the original arrays.
        is_ordered = bool(request.reduction.finds)
        axes = axes_of(
            request.shape, rows(layouts), request.axes, in_order=is_ordered,
            guides=rows(plan.operands),
        )  # fmt: skip
        job = replace(
            job, operands=tuple(e.dtype for e in layouts), element=element, scalars=scalars
        )
        stage = alike(axes, stage)
        sizes = [each.dtype.itemsize for each in layouts]
        device = self.stepped.step.device
        step = step_for(job, stage, sizes, request.divisor, device, values)
        stepped = Stepped(step, job, stage)
        fused = RecordedReduction(plan, stepped, operands, self.result, self._arrays)
        fused.name = name
        return fused


def note(
    node: Any, plan: DevicePlan, stepped: Stepped, operands: Sequence[Any], made: Any, *,
    is_new: bool,
) -> None:  # fmt: skip
    """Attach a description to `node`, a recorded launch of a stage.

    The node keeps memory instead of arrays, so that the graph sees when the program drops the
    arrays.
    """
    node.launch.kept = None
    placed = []
    for each in operands:
        placed.append(_placed(each))
        node.keep(memory_of(each))
    arrays = held(node, made, is_new=is_new)
    node.expression = RecordedReduction(plan, stepped, placed, _placed(made), arrays)


def _placed(each: Any) -> Placed:
    layout = None if isinstance(each, Scratch) else each.layout
    return Placed(each.ptr, each.region, layout)  # type: ignore[arg-type]


def _arrays_first(tree: Expression, operands: list[Any]) -> tuple[Expression, list[Any]]:
    """The tree and its operands with the arrays before the numbers."""
    order = sorted(range(len(operands)), key=lambda at: not isinstance(operands[at], Placed))
    place = {at: number for number, at in enumerate(order)}
    moved: list[Any] = [None] * len(operands)
    for leaf in leaves(tree):
        if not isinstance(leaf, Index):
            moved[leaf.position] = type(leaf)(place[leaf.position], leaf.dtype)
    return substitute(tree, moved), [operands[at] for at in order]


def _fits(value: Any, dtype: Any) -> bool:
    """True if this number can be packed: an operation makes infinities of some numbers."""
    try:
        struct.pack(f"<{C_TYPES[dtype].letter}", value)
    except (struct.error, OverflowError):
        return False
    return True
