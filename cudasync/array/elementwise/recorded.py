"""Floor 4, elementwise. A recorded operation, with the methods that passes over a graph call.

It can inline the operation that made one of its operands. Its arrays may be gone by then: only the
addresses of their bytes matter. The graph holds the memory of a result. An array refers to that
memory through a `Held`, which dies with the last such array, and so shows whether one exists.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.array.elementwise.layouts import on_device
from cudasync.array.expressions.tree import Index, Scalar, leaves, substitute

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.elementwise.plan import DevicePlan
    from cudasync.array.expressions.tree import Expression
    from cudasync.driver import Launch
    from cudasync.engine.hazards.interval_map import Region

# Limits for fused kernels. A kernel has room for more, and such a text compiles in the usual time.
MOST_OPERANDS = 24
MOST_LEAVES = 64


class Held:
    """The memory of a result while some array is on it: the graph holds the memory itself."""

    __slots__ = ("__weakref__", "_memory", "handed", "ptr")

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self.handed = memory.handed
        self.ptr = memory.ptr

    @property
    def device(self) -> Any:
        return self._memory.device

    @property
    def only_device(self) -> Any:
        return self._memory.only_device

    @property
    def life(self) -> Any:
        return self._memory.life

    @property
    def dlpack_device(self) -> Any:
        return self._memory.dlpack_device


class Placed(NamedTuple):
    """An array operand: its address, region and layout."""

    ptr: int
    region: Region
    layout: Layout

    def aimed(self, aim: Any) -> Placed:
        """The operand at its new address: see `graph.retargeting`."""
        by = aim.address(self.region.start) - self.region.start
        return Placed(self.ptr + by, aim.region(self.region), self.layout)

    def on_device(self, device: Any) -> Placed:
        """The same address on another device."""
        return Placed(self.ptr, self.region, on_device(self.layout, device))


class RecordedOperation:
    """A plan and its operands: arrays by their addresses, and numbers."""

    def __init__(
        self,
        plan: DevicePlan,
        operands: Iterable[Any],
        result: Placed,
        arrays: weakref.ref[Held] | None = None,
    ) -> None:
        self.plan = plan
        self.operands = tuple(operands)
        self.result = result
        # Dead once no array is on the result's memory; None if the memory is not the graph's own.
        self._arrays = arrays
        self.name = plan.name

    is_reduction = False

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
        read = dict.fromkeys(e.region for e in self.operands if isinstance(e, Placed))
        target = self.result.region
        if target in read:
            del read[target]
            return tuple(read), (target,), ()
        return tuple(read), (), (target,)

    def launch(self) -> Launch:
        """Its launch, with addresses and numbers packed."""
        launch: Launch = self.plan.packed(self.operands, self.result)
        return launch

    def aimed(self, aim: Any) -> RecordedOperation:
        """The same operation on other memory, with other numbers: see `graph.retargeting`."""

        def put(operand: Any) -> Any:
            return operand.aimed(aim) if isinstance(operand, Placed) else aim.value(operand)

        made = RecordedOperation(self.plan, map(put, self.operands), put(self.result), self._arrays)
        made.name = self.name
        return made

    def on_device(self, device: Any) -> RecordedOperation:
        """The same operation by a kernel of another device, at the same addresses."""
        operands = [e.on_device(device) if isinstance(e, Placed) else e for e in self.operands]
        result = self.result.on_device(device)
        layouts = [each.layout if isinstance(each, Placed) else None for each in operands]
        plan = type(self.plan)(self.plan.tree, layouts, result.layout)
        made = RecordedOperation(plan, operands, result, self._arrays)
        made.name = self.name
        return made

    def takes_in(self, other: Any) -> RecordedOperation | None:
        """This operation with `other`, the producer of an operand, inlined; None if that is
        impossible.

        The operand has the result's shape, so nothing is computed twice.
        """
        if not isinstance(other, RecordedOperation):
            return None
        made, target = other.result, self.result
        mine = [e for e in self.operands if isinstance(e, Placed) and meet(e.region, made.region)]
        if not mine or any(e != made or e.layout.shape != target.layout.shape for e in mine):
            return None
        # The overwritten memory lies on the read memory element on element, or apart.
        for each in other.operands:
            if isinstance(each, Placed) and meet(each.region, target.region):
                is_same = each.region == target.region and each.layout is target.layout
                if not is_same or target.region.__class__ is not each.region.__class__:
                    return None
        found = merged(self.plan.tree, self.operands, other)
        if found is None:
            return None
        tree, operands = found
        layouts = [each.layout if isinstance(each, Placed) else None for each in operands]
        plan = type(self.plan)(tree, layouts, target.layout)
        fused = RecordedOperation(plan, operands, target, self._arrays)
        fused.name = f"{other.name}, {self.name}"
        return fused


def note(node: Any, plan: DevicePlan, operands: Sequence[Any], made: Any, *, is_new: bool) -> None:
    """Attach a description to `node`, a recorded launch of `plan`.

    The node keeps memory instead of arrays, so that the graph sees when the program drops the
    arrays.
    """
    node.launch.kept = None
    placed: list[Any] = []
    for operand, layout in zip(operands, plan.operands, strict=True):
        if layout is None:
            placed.append(operand)
        else:
            placed.append(Placed(operand.ptr, operand.region, layout))
            node.keep(memory_of(operand))
    result = Placed(made.ptr, made.region, plan.result)
    node.expression = RecordedOperation(plan, placed, result, held(node, made, is_new=is_new))


def held(node: Any, made: Any, *, is_new: bool) -> weakref.ref[Held] | None:
    """Let `node` keep the memory of its result `made`. Returns a reference that dies with the last
    array on that memory, if the node's operation allocated it."""
    memory = memory_of(made)
    node.keep(memory)
    if not is_new:
        return None
    made._allocation = Held(memory)
    return weakref.ref(made._allocation)


def merged(
    tree: Expression, mine: Sequence[Any], other: RecordedOperation
) -> tuple[Expression, list[Any]] | None:
    """`tree`, with the computation of `other` in place of its result among the operands `mine`, and
    the operands of both. None if that is too much for a kernel."""
    operands: list[Any] = []
    inner = _moved(other.plan.tree, other.operands, operands)
    kept = {at: e for at, e in enumerate(mine) if not _is(e, other.result)}
    places = range(len(mine))
    whole = substitute(
        tree, [_leaf_at(tree, at, kept[at], operands) if at in kept else inner for at in places]
    )
    if len(operands) > MOST_OPERANDS or len(leaves(whole)) > MOST_LEAVES:
        return None
    return whole, operands


def memory_of(array: Any) -> Any:
    memory = array._allocation
    return memory._memory if isinstance(memory, Held) else memory


def _is(operand: Any, array: Placed) -> bool:
    """True for the same array. A number of NumPy's would compare itself with the parts of one."""
    return isinstance(operand, Placed) and operand == array


def meet(one: Region, other: Region) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _moved(tree: Expression, theirs: Sequence[Any], operands: list[Any]) -> Expression:
    """`tree` with new positions for its leaves; their operands are appended to `operands`."""
    return substitute(tree, [_leaf_at(tree, at, e, operands) for at, e in enumerate(theirs)])


def _leaf_at(tree: Expression, at: int, operand: Any, operands: list[Any]) -> Any:
    """The leaf for `operand`, from that position of `tree`, at its position in `operands`."""
    for leaf in leaves(tree):
        if not isinstance(leaf, Index) and leaf.position == at:
            if not isinstance(leaf, Scalar):
                for place, each in enumerate(operands):
                    if _is(each, operand):
                        return type(leaf)(place, leaf.dtype)
            operands.append(operand)
            return type(leaf)(len(operands) - 1, leaf.dtype)
    # No leaf uses it.
    return None
