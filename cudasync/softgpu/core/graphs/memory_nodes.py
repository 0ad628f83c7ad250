"""Cellar. Memory of graphs: its address is fixed from the node on, its bytes come and go.

True of every piece of it:
- the address is reserved as long as a graph or executable has the node that allocates it, or
  the program has the memory;
- `is_out` is what holds when all calls so far are done: allocated, and not freed;
- the allocation is live from the command that allocates it to the one that frees it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from cudasync.softgpu.core.commands import Command, Step, Touched
from cudasync.softgpu.core.graphs.works import NodeType, Work
from cudasync.softgpu.core.memory import MemoryKind
from cudasync.softgpu.core.results import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.graph import Graph
    from cudasync.softgpu.core.memory import AllocationTable
    from cudasync.softgpu.core.memory_manager import MemoryManager
    from cudasync.softgpu.core.streams import Stream


PROPERTIES_BYTES: Final = 88
"""Of CUmemPoolProps."""


class Use:
    """How much memory of a device graphs have: CUgraphMem_attribute."""

    def __init__(self) -> None:
        self.used = self.used_high = self.reserved = self.reserved_high = 0

    def change(self, size_bytes: int) -> None:
        """So much more, or less, is in use; what is freed stays reserved."""
        self.used += size_bytes
        self.used_high = max(self.used_high, self.used)
        self.reserved = max(self.reserved, self.used)
        self.reserved_high = max(self.reserved_high, self.reserved)

    def trim(self) -> None:
        """Reserve no more than what is in use."""
        self.reserved = self.used

    def get(self, attribute: int) -> int:
        """One of the four numbers."""
        values = (self.used, self.used_high, self.reserved, self.reserved_high)
        if attribute not in range(len(values)):
            raise DriverFailure(INVALID_VALUE, f"there is no graph memory attribute {attribute}")
        return values[attribute]

    def reset(self, attribute: int, value: int) -> None:
        """Set a high-water mark back."""
        if attribute not in (1, 3) or value:
            raise DriverFailure(INVALID_VALUE, "only high-water marks can be set, and to 0")
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
        context: Context,
        use: Use,
    ) -> None:
        self._memory = memory
        self._table = table
        self._use = use
        self.context = context
        self.holders = 0
        self.is_out = False
        made = memory.allocate(table, size_bytes, MemoryKind.POOL, live=False, context=context)
        made.name, made.keeper = "of a graph", self
        self.allocation = made

    def appear(self) -> None:
        """The node that allocates runs."""
        made = self.allocation
        if not made.is_live:
            self._table.arena.poison(made.start, made.size_bytes)
            self._table.make_live(made)
            self._use.change(made.size_bytes)

    def vanish(self) -> None:
        """Whatever frees it runs; the address stays reserved while anybody holds it."""
        made = self.allocation
        if made.is_live:
            made.is_live = False
            self._table.version += 1
            self._table.arena.poison(made.start, made.size_bytes)
            self._use.change(-made.size_bytes)
        made.is_freeing = False
        self._end_if_done()

    def take_out(self) -> None:
        """A launch that allocates it is enqueued."""
        self.is_out = True
        self.allocation.is_freeing = False

    def give_back(self) -> None:
        """Called where a free is enqueued; INVALID_VALUE if the program does not have it."""
        if not self.is_out:
            raise DriverFailure(INVALID_VALUE, f"not allocated now: {self.allocation.describe()}")
        self.is_out = False

    def release(self) -> None:
        """One graph or executable less has it."""
        self.holders -= 1
        self._end_if_done()

    def _end_if_done(self) -> None:
        made = self.allocation
        if self.holders <= 0 and not self.is_out and not made.is_live:
            made.keeper = None
            self._memory.end(made)


@dataclass(frozen=True, slots=True)
class AllocationWork(Work):
    """A node at which memory comes into being."""

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
        return MemoryAppears(stream, self.memory)

    def describe(self) -> str:
        return f"an allocation of {self.memory.allocation.size_bytes} bytes"


@dataclass(frozen=True, slots=True)
class FreeWork(Work):
    """A node at which it is gone."""

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
    """The moment at which it comes into being."""

    __slots__ = ("memory",)

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
    """The moment at which it is gone."""

    __slots__ = ()

    def run(self) -> Step:
        self.memory.vanish()
        return Step.DONE

    def describe(self) -> str:
        return f"a free of {self.memory.allocation.size_bytes} bytes of a graph"


def pool_properties(ordinal: int) -> bytes:
    """CUmemPoolProps of memory of a device: pinned in place, shared with nobody."""
    return struct.pack("<IIII", 1, 0, 1, ordinal).ljust(PROPERTIES_BYTES, b"\0")


def allocated_by(graph: Graph) -> list[GraphMemory]:
    """The memory that a graph's nodes allocate."""
    return [n.work.memory for n in graph.everything() if isinstance(n.work, AllocationWork)]


def has_memory_nodes(graph: Graph) -> bool:
    """True if it allocates or frees: then it can not be copied or taken apart."""
    return any(isinstance(n.work, AllocationWork | FreeWork) for n in graph.everything())


def check_free(graph: Graph, memory: GraphMemory) -> None:
    """INVALID_VALUE if a graph frees the memory already."""
    if any(isinstance(n.work, FreeWork) and n.work.memory is memory for n in graph.nodes):
        raise DriverFailure(
            INVALID_VALUE, f"the graph frees it already: {memory.allocation.describe()}"
        )
