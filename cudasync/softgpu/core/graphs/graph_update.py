"""Cellar. Updates of an executable graph's node parameters: of all nodes, or of one.

Nothing is changed unless all changes are allowed.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum, unique
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.graphs.conditional_nodes import ConditionalWork
from cudasync.softgpu.core.graphs.node_parameters import CopyWork, FillWork, KernelWork, NodeType

if TYPE_CHECKING:
    from cudasync.softgpu.core.graphs.executable_graph import GraphExec
    from cudasync.softgpu.core.graphs.graph import Graph, Node
    from cudasync.softgpu.core.graphs.node_parameters import Work
    from cudasync.softgpu.core.memory.copy_commands import Place

# CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.
_NODE_PRIORITY: Final = 8

CAN_BE_DISABLED = frozenset({NodeType.KERNEL, NodeType.MEMCPY, NodeType.MEMSET})


@unique
class UpdateResult(IntEnum):
    """CUgraphExecUpdateResult."""

    SUCCESS = 0
    ERROR = 1
    TOPOLOGY_CHANGED = 2
    NODE_TYPE_CHANGED = 3
    FUNCTION_CHANGED = 4
    PARAMETERS_CHANGED = 5
    NOT_SUPPORTED = 6
    UNSUPPORTED_FUNCTION_CHANGE = 7
    ATTRIBUTES_CHANGED = 8


class UpdateRefused(Exception):
    """An executable cannot be updated from a graph: the reason, and the node."""

    def __init__(
        self, result: UpdateResult, node: Node | None = None, source: Node | None = None
    ) -> None:
        self.result = result
        self.node = node
        self.source = source
        where = f" at {node.work.describe()}" if node is not None else ""
        super().__init__(f"{result.name.lower().replace('_', ' ')}{where}")


def pairs(executable: GraphExec, own: Graph, other: Graph) -> list[tuple[Node, Node]]:
    """Each node of `own` with its counterpart in `other`, also in nested graphs."""
    mine, theirs = executable.order(own), other.order()
    if len(mine) != len(theirs):
        raise UpdateRefused(UpdateResult.TOPOLOGY_CHANGED)
    place = {node: index for index, node in enumerate(mine)}
    other_place = {node: index for index, node in enumerate(theirs)}
    found: list[tuple[Node, Node]] = []
    for node, twin in zip(mine, theirs, strict=True):
        if node.work.kind != twin.work.kind:
            raise UpdateRefused(UpdateResult.NODE_TYPE_CHANGED, twin)
        before = {place[n]: edge for n, edge in node.dependencies.items()}
        wanted = {other_place[n]: edge for n, edge in twin.dependencies.items()}
        if before != wanted:
            extra = next((n for n in twin.dependencies if other_place[n] not in before), None)
            raise UpdateRefused(UpdateResult.TOPOLOGY_CHANGED, twin, extra)
        result = compared(node.work, twin.work)
        if executable.flags & _NODE_PRIORITY and _priority(node.work) != _priority(twin.work):
            result = UpdateResult.ATTRIBUTES_CHANGED
        if result is not UpdateResult.SUCCESS:
            raise UpdateRefused(result, twin)
        found.append((node, twin))
        if len(node.work.graphs) != len(twin.work.graphs):
            raise UpdateRefused(UpdateResult.PARAMETERS_CHANGED, twin)
        for inside, inside_twin in zip(node.work.graphs, twin.work.graphs, strict=True):
            found += pairs(executable, inside, inside_twin)
    return found


def compared(old: Work, new: Work) -> UpdateResult:
    """Whether an update may replace the work `old` by `new`."""
    match old, new:
        case KernelWork(), KernelWork():
            if old.context is not new.context:
                return UpdateResult.UNSUPPORTED_FUNCTION_CHANGE
            if old.is_cooperative != new.is_cooperative:
                return UpdateResult.ATTRIBUTES_CHANGED
        case CopyWork(), CopyWork():
            same = _is_like(old.target, new.target) and _is_like(old.source, new.source)
            if not same or old.context is not new.context or _kinds(old) != _kinds(new):
                return UpdateResult.PARAMETERS_CHANGED
        case FillWork(), FillWork():
            if not _is_like(old.target, new.target) or old.context is not new.context:
                return UpdateResult.PARAMETERS_CHANGED
            if old.height != new.height or (old.height > 1 and _shape(old) != _shape(new)):
                return UpdateResult.PARAMETERS_CHANGED
        case _:
            if not new.may_replace(old):
                return UpdateResult.NOT_SUPPORTED
    return UpdateResult.SUCCESS


def compared_alone(old: Work, new: Work) -> UpdateResult:
    """Like `compared`, for a change of one node, for which CUDA allows less: copies of lines."""
    match old, new:
        case CopyWork(), CopyWork():
            boxes = old.box, new.box
            if any(box.height > 1 or box.depth > 1 for box in boxes) or not new.box.size_bytes:
                return UpdateResult.PARAMETERS_CHANGED
        case FillWork(), FillWork():
            if not new.width or not new.height:
                return UpdateResult.PARAMETERS_CHANGED
    return compared(old, new)


def _kinds(work: CopyWork) -> tuple[int, int]:
    return work.box.source.kind, work.box.target.kind


def _shape(work: FillWork) -> tuple[int, int, int]:
    return work.width, work.word_bytes, work.pitch


def _priority(work: Work) -> int | None:
    return work.priority if isinstance(work, KernelWork) else None


def _is_like(old: Place, new: Place) -> bool:
    """True if both are memory of the same device, or both of the host."""
    return _home(old) is _home(new)


def _home(place: Place) -> object:
    found = place.allocation
    return None if found is None or found.kind.is_host else found.context.device


def with_attributes_of(old: Work, new: Work) -> Work:
    """`new` with the attributes of `old`: a kernel node keeps them when its parameters change."""
    if isinstance(old, KernelWork) and isinstance(new, KernelWork):
        return dataclasses.replace(new, is_cooperative=old.is_cooperative, priority=old.priority)
    return new


def replace(node: Node, work: Work) -> None:
    """Set the work of an executable's node; its nested graphs stay its own."""
    if isinstance(work, ConditionalWork) and isinstance(node.work, ConditionalWork):
        node.work = node.work.with_condition_of(work)
    elif not work.graphs:
        node.work = work
