"""Cellar. Memory of graphs: its address is fixed when the node is made, its bytes come and go.

True of every allocation:
- the address is reserved as long as a graph or executable has the allocating node, or the program
  has the memory;
- `is_out` describes the state after all calls so far: allocated, and not freed;
- the allocation is live from the allocating command to the freeing command.

A graph belongs to one thread at a time, but several threads may end or launch graphs at once, and
commands run on others. So `Use` counts under the executor's lock. The holders of an allocation are
a list, because append and pop are one C call. A thread that finds the list empty ends the
allocation, which may happen twice.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.graphs.node_parameters import NodeType, Work
from cudasync.softgpu.core.streams.commands import Command, Step, Touched
from cudasync.softgpu.interface.poison import poison_pages

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.graph import Graph
    from cudasync.softgpu.core.memory.allocation_table import AllocationTable, MemoryKind
    from cudasync.softgpu.core.memory.memory_manager import MemoryManager
    from cudasync.softgpu.core.memory.memory_pools import Pool
    from cudasync.softgpu.core.scheduling.executor import Executor
    from cudasync.softgpu.core.streams.streams import Stream


PROPERTIES_BYTES: Final = 88
"""The size of CUmemPoolProps."""


class Use:
    """The use of a device's memory by graphs: CUgraphMem_attribute.

    Memory is in use while it is mapped: from the launch or upload of an executable until a trim or
    the executable's end, even if a node frees it meanwhile. Memory that the program keeps longer
    than the executable stays in use after its free, until a trim, or until a graph takes as much.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.used = self.used_high = self.reserved = self.reserved_high = 0
        self._mapped: dict[GraphMemory, None] = {}
        # The part of `used` that belongs to no allocation any more.
        self._left = 0

    def map(self, memory: GraphMemory) -> None:
        """Count an allocation as in use, if it is not."""
        with self._executor.lock:
            if memory not in self._mapped:
                self._mapped[memory] = None
                taken = min(self._left, memory.allocation.size_bytes)
                self._left -= taken
                self.used += memory.allocation.size_bytes - taken
                self.used_high = max(self.used_high, self.used)
                self.reserved = max(self.reserved, self.used)
                self.reserved_high = max(self.reserved_high, self.reserved)

    def unmap(self, memory: GraphMemory) -> None:
        """Count an allocation as unused, if it is in use; it stays reserved."""
        with self._executor.lock:
            self._unmap(memory)

    def _unmap(self, memory: GraphMemory) -> None:
        if memory in self._mapped:
            del self._mapped[memory]
            self.used -= memory.allocation.size_bytes

    def leave(self, memory: GraphMemory) -> None:
        """Drop an allocation; its mapped bytes stay in use."""
        with self._executor.lock:
            if memory in self._mapped:
                del self._mapped[memory]
                self._left += memory.allocation.size_bytes

    def trim(self) -> None:
        """Give back memory that neither enqueued work nor the program needs."""
        with self._executor.lock:
            self.used -= self._left
            self._left = 0
            for memory in list(self._mapped):
                if not memory.is_busy:
                    self._unmap(memory)
            self.reserved = self.used

    def get(self, attribute: int) -> int:
        """One of the four numbers."""
        with self._executor.lock:
            values = (self.used, self.used_high, self.reserved, self.reserved_high)
        if attribute not in range(len(values)):
            raise DriverFailure(INVALID_VALUE, f"there is no graph memory attribute {attribute}")
        return values[attribute]

    def reset(self, attribute: int, value: int) -> None:
        """Reset a high-water mark."""
        if attribute not in (1, 3) or value:
            raise DriverFailure(INVALID_VALUE, "only high-water marks can be set, and only to 0")
        with self._executor.lock:
            if attribute == 1:
                self.used_high = self.used
            else:
                self.reserved_high = self.reserved


class GraphMemory:
    """One allocation that nodes make and free."""

    def __init__(
        self,
        memory: MemoryManager,
        table: AllocationTable,
        size_bytes: int,
        kind: MemoryKind,
        context: Context,
        use: Use,
    ) -> None:
        self._memory = memory
        self._use = use
        self.context = context
        # One item for each graph or executable that holds it.
        self.holders: list[None] = []
        self.is_out = False
        # The latest command that allocates it.
        self.appears: Command | None = None
        made = memory.allocate(
            table, size_bytes, kind, live=False, context=context, may_be_empty=True
        )
        made.name, made.keeper = "of a graph", self
        self.allocation = made

    @property
    def is_busy(self) -> bool:
        """True if the program has it, or enqueued work will need it."""
        pending = self.appears is not None and not self.appears.is_done
        return pending or self.is_out or self.allocation.is_live

    def map(self) -> None:
        """Count it as in use for an executable."""
        self._use.map(self)

    def appear(self) -> None:
        """Called when the allocating node runs."""
        made = self.allocation
        if not made.is_live:
            poison_pages(made.start, made.size_bytes)
            self._memory.make_live(made)

    def vanish(self) -> None:
        """Called when its free runs; the address stays reserved while there are holders."""
        made = self.allocation
        if made.is_live:
            self._memory.hide(made)
            poison_pages(made.start, made.size_bytes)
        made.is_freeing = False
        self._end_if_done()

    def take_out(self) -> None:
        """Called when an allocating launch is enqueued."""
        self.map()
        self.is_out = True
        self.allocation.is_freeing = False

    def give_back(self) -> None:
        """Called when a free is enqueued; INVALID_VALUE if the program does not have it."""
        if not self.is_out:
            raise DriverFailure(
                INVALID_VALUE, f"the memory is not allocated now: {self.allocation.describe()}"
            )
        self.is_out = False

    def release(self) -> None:
        """Remove a graph or executable as a holder."""
        self.holders.pop()
        self._end_if_done()

    def leave(self) -> None:
        """Called when its executable ends."""
        if not self.is_busy:
            self._use.unmap(self)
        self.release()

    def abandon(self) -> None:
        """Called when its context ends, and the allocation with it."""
        self._use.unmap(self)
        self.allocation.keeper = None

    def _end_if_done(self) -> None:
        made = self.allocation
        if not self.holders and not self.is_out and not made.is_live:
            self._use.leave(self)
            self.abandon()
            self._memory.end(made)


@dataclass(frozen=True, slots=True)
class AllocationWork(Work):
    """A node that allocates memory."""

    kind: ClassVar[NodeType] = NodeType.MEM_ALLOC

    memory: GraphMemory
    properties: bytes
    """CUmemPoolProps, as given."""

    @property
    def context(self) -> Context:
        return self.memory.context

    def may_replace(self, old: Work) -> bool:
        return self == old

    def command(self, stream: Stream) -> Command:
        self.memory.take_out()
        self.memory.appears = made = MemoryAppears(stream, self.memory)
        return made

    def describe(self) -> str:
        return f"an allocation of {self.memory.allocation.size_bytes} bytes"


@dataclass(frozen=True, slots=True)
class FreeWork(Work):
    """A node that frees memory of a graph."""

    kind: ClassVar[NodeType] = NodeType.MEM_FREE

    memory: GraphMemory

    @property
    def context(self) -> Context:
        return self.memory.context

    def may_replace(self, old: Work) -> bool:
        return self == old

    def command(self, stream: Stream) -> Command:
        self.memory.is_out = False
        return MemoryVanishes(stream, self.memory)

    def describe(self) -> str:
        return f"a free of {self.memory.allocation.size_bytes} bytes"


class MemoryAppears(Command):
    """The command that makes a graph's memory live."""

    __slots__ = ("memory",)

    is_access = False

    def __init__(self, stream: Stream, memory: GraphMemory) -> None:
        super().__init__(stream)
        self.memory = memory

    def run(self) -> Step:
        self.memory.appear()
        return Step.DONE

    def touched(self) -> Touched:
        made = self.memory.allocation
        return Touched((), [(made.start, made.end)])

    def describe(self) -> str:
        return f"an allocation of {self.memory.allocation.size_bytes} bytes by a graph"


class MemoryVanishes(MemoryAppears):
    """The command that ends a graph's memory."""

    __slots__ = ()

    def run(self) -> Step:
        self.memory.vanish()
        return Step.DONE

    def describe(self) -> str:
        return f"a free of {self.memory.allocation.size_bytes} bytes of a graph"


def pool_properties(pool: Pool) -> bytes:
    """The CUmemPoolProps of memory like a pool's, without sharing."""
    place = pool.location
    head = struct.pack("<IIII", pool.allocation_type, 0, place.kind, place.number)
    return head.ljust(PROPERTIES_BYTES, b"\0")


def allocated_by(graph: Graph) -> list[GraphMemory]:
    """The memory that the nodes of a graph allocate."""
    return [n.work.memory for n in graph.everything() if isinstance(n.work, AllocationWork)]


def has_memory_nodes(graph: Graph) -> bool:
    """True if a graph allocates or frees memory: it then cannot be copied or taken apart."""
    return any(isinstance(n.work, AllocationWork | FreeWork) for n in graph.everything())


def check_free(graph: Graph, memory: GraphMemory) -> None:
    """INVALID_VALUE if a graph already frees the memory."""
    if any(isinstance(n.work, FreeWork) and n.work.memory is memory for n in graph.nodes):
        raise DriverFailure(
            INVALID_VALUE, f"another node of the graph frees {memory.allocation.describe()}"
        )
