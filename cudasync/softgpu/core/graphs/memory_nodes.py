"""Cellar. Memory of graphs: its address is fixed from the node on, its bytes come and go.

True of every piece of it:
- the address is reserved as long as a graph or executable has the node that allocates it, or
  the program has the memory;
- `is_out` is what holds when all calls so far are done: allocated, and not freed;
- the allocation is live from the command that allocates it to the one that frees it.

Graphs are one thread's at a time, but several may end or launch theirs at once, and commands run on
others. So `Use` counts under the executor's lock, and who holds a piece is a list: to append and to
pop is one C call, and whoever finds it empty ends the piece, which may be done twice.
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
"""Of CUmemPoolProps."""


class Use:
    """How much memory of a device graphs have: CUgraphMem_attribute.

    In use is what is mapped: from the call that launches or uploads an executable until it is
    trimmed or the executable goes, whether or not a node has freed it meanwhile. What a program
    had longer than the executable stays in use when it is freed, until it is trimmed or a graph
    takes as much.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.used = self.used_high = self.reserved = self.reserved_high = 0
        self._mapped: dict[GraphMemory, None] = {}
        # Of what is used: what belongs to no memory any more.
        self._left = 0

    def map(self, memory: GraphMemory) -> None:
        """Let a piece be in use, if it is not."""
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
        """Let a piece be in use no more, if it is; it stays reserved."""
        with self._executor.lock:
            self._unmap(memory)

    def _unmap(self, memory: GraphMemory) -> None:
        if memory in self._mapped:
            del self._mapped[memory]
            self.used -= memory.allocation.size_bytes

    def leave(self, memory: GraphMemory) -> None:
        """Let a piece go and what it had mapped stay in use."""
        with self._executor.lock:
            if memory in self._mapped:
                del self._mapped[memory]
                self._left += memory.allocation.size_bytes

    def trim(self) -> None:
        """Give back what nothing enqueued and no program needs."""
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
        """Set a high-water mark back."""
        if attribute not in (1, 3) or value:
            raise DriverFailure(INVALID_VALUE, "only high-water marks can be set, and to 0")
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
        # One item for each graph or executable that has it.
        self.holders: list[None] = []
        self.is_out = False
        # The last command at which it comes into being.
        self.appears: Command | None = None
        made = memory.allocate(
            table, size_bytes, kind, live=False, context=context, may_be_empty=True
        )
        made.name, made.keeper = "of a graph", self
        self.allocation = made

    @property
    def is_busy(self) -> bool:
        """True if a program has it, or something enqueued will need it."""
        pending = self.appears is not None and not self.appears.is_done
        return pending or self.is_out or self.allocation.is_live

    def map(self) -> None:
        """An executable is about to need it."""
        self._use.map(self)

    def appear(self) -> None:
        """The node that allocates runs."""
        made = self.allocation
        if not made.is_live:
            poison_pages(made.start, made.size_bytes)
            self._memory.make_live(made)

    def vanish(self) -> None:
        """Whatever frees it runs; the address stays reserved while anybody holds it."""
        made = self.allocation
        if made.is_live:
            self._memory.hide(made)
            poison_pages(made.start, made.size_bytes)
        made.is_freeing = False
        self._end_if_done()

    def take_out(self) -> None:
        """A launch that allocates it is enqueued."""
        self.map()
        self.is_out = True
        self.allocation.is_freeing = False

    def give_back(self) -> None:
        """Called where a free is enqueued; INVALID_VALUE if the program does not have it."""
        if not self.is_out:
            raise DriverFailure(INVALID_VALUE, f"not allocated now: {self.allocation.describe()}")
        self.is_out = False

    def release(self) -> None:
        """One graph or executable less has it."""
        self.holders.pop()
        self._end_if_done()

    def leave(self) -> None:
        """Its executable goes."""
        if not self.is_busy:
            self._use.unmap(self)
        self.release()

    def abandon(self) -> None:
        """Its context goes, and the allocation with it."""
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
        self.memory.appears = made = MemoryAppears(stream, self.memory)
        return made

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
    """The moment at which it is gone."""

    __slots__ = ()

    def run(self) -> Step:
        self.memory.vanish()
        return Step.DONE

    def describe(self) -> str:
        return f"a free of {self.memory.allocation.size_bytes} bytes of a graph"


def pool_properties(pool: Pool) -> bytes:
    """CUmemPoolProps of memory as a pool gives it, shared with nobody."""
    place = pool.location
    head = struct.pack("<IIII", pool.allocation_type, 0, place.kind, place.number)
    return head.ljust(PROPERTIES_BYTES, b"\0")


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
