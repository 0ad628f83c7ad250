"""Cellar. Resources of graphs: memory with fixed addresses, and conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.handles import Handles
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.graphs.conditional_nodes import (
    Condition,
    ConditionalType,
    ConditionalWork,
    check_size,
)
from cudasync.softgpu.core.graphs.graph import Graph, Node
from cudasync.softgpu.core.graphs.memory_nodes import (
    AllocationWork,
    FreeWork,
    GraphMemory,
    Use,
    allocated_by,
    check_free,
    pool_properties,
)
from cudasync.softgpu.core.memory.allocation_table import MemoryKind

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.stream_capture import Capture
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.memory.memory_pools import Pool
    from cudasync.softgpu.core.streams.streams import Stream

_ASSIGN_DEFAULT: Final = 1
_WORD_BYTES: Final = 4


class Resources:
    """Memory and conditions of all graphs of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._conditions: Handles[Condition] = Handles("conditional handle", code=INVALID_VALUE)
        self._uses = [Use(machine.executor) for _ in machine.devices]

    # Conditions

    def create_condition(self, graph: Graph, context: Context, initial: int, flags: int) -> int:
        """The handle of a new condition for a conditional node of a graph."""
        if flags & ~_ASSIGN_DEFAULT:
            raise DriverFailure(INVALID_VALUE, f"unknown flags {flags:#x}")
        memory = self._machine.memory.allocate(
            context.device.memory, _WORD_BYTES, MemoryKind.VARIABLE, context=context
        )
        memory.name = "a condition of a graph"
        made = Condition(memory, initial, self._end_condition, is_assigned=bool(flags))
        self._conditions.add(made.handle, made)
        graph.conditions.append(made)
        return made.handle

    def _end_condition(self, condition: Condition) -> None:
        self._conditions.discard(condition.handle)
        self._machine.memory.end(condition.memory)

    def conditional(
        self, graph: Graph, handle: int, kind: int, size: int, context: Context
    ) -> ConditionalWork:
        """The work of a conditional node, with empty bodies."""
        check_size(kind, size)
        condition = self._conditions.get(handle)
        if condition.is_used or condition not in graph.conditions:
            raise DriverFailure(
                INVALID_VALUE, "the handle has a node already, or belongs to another graph"
            )
        condition.is_used = True
        bodies = tuple(Graph() for _ in range(size))
        return ConditionalWork(condition, ConditionalType(kind), bodies, context)

    # Memory

    def use(self, ordinal: int) -> Use:
        """The use of a device's memory by graphs."""
        self._machine.device(ordinal)
        return self._uses[ordinal]

    def allocation(self, size_bytes: int, pool: Pool, properties: bytes) -> AllocationWork:
        """The work of a node that allocates like a pool; the memory gets its address now."""
        machine = self._machine
        context = machine.context()
        device = pool.device or context.device
        context = context if context.device is device else device.primary
        is_here = pool.kind is MemoryKind.POOL
        memory = GraphMemory(
            machine.memory,
            device.memory if is_here else machine.host_memory,
            size_bytes,
            pool.kind,
            context,
            self._uses[device.ordinal],
        )
        memory.holders.append(None)
        return AllocationWork(memory, properties)

    def free(self, graph: Graph, address: int) -> FreeWork:
        """The work of a node that frees the memory of an allocation node."""
        found = self._machine.memory.find(address)
        if found is None or found.keeper is None or found.start != address:
            raise DriverFailure(
                INVALID_VALUE, f"{address:#x} is not the start of memory that a graph allocates"
            )
        check_free(graph, found.keeper)
        return FreeWork(found.keeper)

    def capture_allocation(
        self, capture: Capture, stream: Stream, size_bytes: int, pool: Pool
    ) -> Allocation:
        """cuMemAllocAsync in a captured stream."""
        capture.check()
        work = self.allocation(size_bytes, pool, pool_properties(pool))
        capture.add(stream, work)
        return work.memory.allocation

    def capture_free(self, capture: Capture, stream: Stream, allocation: Allocation) -> None:
        """cuMemFreeAsync in a captured stream."""
        capture.check()
        capture.add(stream, self.free(capture.graph, allocation.start))

    def let_go_of_node(self, node: Node) -> None:
        """Release the conditions of a removed node and of its bodies."""
        ended = [each for inside in node.work.graphs for each in inside.all_conditions()]
        if isinstance(node.work, ConditionalWork):
            node.graph.conditions.remove(node.work.condition)
            ended.append(node.work.condition)
        for condition in ended:
            condition.release()

    def let_go(self, graph: Graph) -> None:
        """Release the memory and conditions of a graph that ends."""
        for condition in graph.all_conditions():
            condition.release()
        for memory in allocated_by(graph):
            memory.release()
