"""Cellar. Works: the parameters of graph nodes, as values that make commands.

A work never changes; setting a node's parameters gives the node another work. So an enqueued launch
keeps its parameters, and copies of a graph may share works.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique
from typing import TYPE_CHECKING, ClassVar

from cudasync.softgpu.core.launch.kernel_launch import NodeLaunch, Plan
from cudasync.softgpu.core.memory.box_copies import BoxCopy
from cudasync.softgpu.core.memory.copy_commands import Fill
from cudasync.softgpu.core.streams.commands import Command, EventRecord, Touched
from cudasync.softgpu.core.streams.host_functions import HostFunction

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.graph import Graph
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.box_copies import Box
    from cudasync.softgpu.core.memory.copy_commands import Place
    from cudasync.softgpu.core.modules.modules import Function
    from cudasync.softgpu.core.streams.host_functions import HostFunctions
    from cudasync.softgpu.core.streams.streams import Event, Stream
    from cudasync.softgpu.interface.launch import Dim3


@unique
class NodeType(IntEnum):
    """CUgraphNodeType."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    HOST = 3
    GRAPH = 4
    EMPTY = 5
    WAIT_EVENT = 6
    EVENT_RECORD = 7
    EXT_SEMAS_SIGNAL = 8
    EXT_SEMAS_WAIT = 9
    MEM_ALLOC = 10
    MEM_FREE = 11
    BATCH_MEM_OP = 12
    CONDITIONAL = 13


class Nothing(Command):
    """The command of an empty or disabled node, and of the beginning of a child graph."""

    __slots__ = ("what",)

    def __init__(self, stream: Stream, what: str) -> None:
        super().__init__(stream)
        self.what = what

    def touched(self) -> Touched:
        return Touched()

    def describe(self) -> str:
        return self.what


class Work:
    """The work of a node."""

    __slots__ = ()

    kind: ClassVar[NodeType]

    @property
    def context(self) -> Context | None:
        """The context in which it must run; None stands for the launching stream's."""
        return None

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The nested graphs."""
        return ()

    def copied(self, copy: Callable[[Graph], Graph]) -> Work:
        """The same work with its own copies of the nested graphs."""
        del copy
        return self

    def may_replace(self, old: Work) -> bool:
        """True if an update may replace the work `old` by this one."""
        return self.kind == old.kind

    def command(self, stream: Stream) -> Command:
        """The command that a launch enqueues for it."""
        return Nothing(stream, self.describe())

    def describe(self) -> str:
        """Its name in a drawing of the graph and in reports."""
        return f"{self.kind.name.lower().replace('_', ' ')} node"


@dataclass(frozen=True, slots=True)
class EmptyWork(Work):
    """A node that only orders others."""

    kind: ClassVar[NodeType] = NodeType.EMPTY


@dataclass(frozen=True, slots=True)
class KernelWork(Work):
    """A launch, with copied arguments."""

    kind: ClassVar[NodeType] = NodeType.KERNEL

    machine: Machine
    function: Function
    grid: Dim3
    block: Dim3
    shared_bytes: int
    parameters: bytes
    is_cooperative: bool = False
    priority: int = 0

    @property
    def context(self) -> Context:
        return self.function.module.context

    def command(self, stream: Stream) -> Command:
        plan = Plan(self.machine, self.function, self.grid, self.block, self.shared_bytes)
        return NodeLaunch(stream, plan, self.parameters, is_cooperative=self.is_cooperative)

    def describe(self) -> str:
        return f"kernel {self.function.name}"


@dataclass(frozen=True, slots=True)
class CopyWork(Work):
    """A copy of a box of bytes; the places are of the boxes' first bytes."""

    kind: ClassVar[NodeType] = NodeType.MEMCPY

    box: Box
    target: Place
    source: Place
    where: Context

    @property
    def context(self) -> Context:
        return self.where

    def command(self, stream: Stream) -> Command:
        return BoxCopy(stream, self.box, self.target, self.source)

    def describe(self) -> str:
        return f"a copy of {self.box.size_bytes} bytes"


@dataclass(frozen=True, slots=True)
class FillWork(Work):
    """A memset of `width` words in each of `height` rows."""

    kind: ClassVar[NodeType] = NodeType.MEMSET

    target: Place
    pitch: int
    value: int
    word_bytes: int
    width: int
    height: int
    where: Context

    @property
    def context(self) -> Context:
        return self.where

    def command(self, stream: Stream) -> Command:
        pattern = (self.value & (1 << 8 * self.word_bytes) - 1).to_bytes(self.word_bytes, "little")
        size_bytes = self.width * self.word_bytes
        return Fill(stream, self.target, pattern, size_bytes, rows=self.height, pitch=self.pitch)

    def describe(self) -> str:
        return f"a memset of {self.width * self.word_bytes * self.height} bytes"


@dataclass(frozen=True, slots=True)
class HostWork(Work):
    """A call of a native function."""

    kind: ClassVar[NodeType] = NodeType.HOST

    function: int
    user_data: int
    workers: HostFunctions

    def command(self, stream: Stream) -> Command:
        return HostFunction(stream, self.function, self.user_data, self.workers)

    def describe(self) -> str:
        return f"host function {self.function:#x}"


@dataclass(frozen=True, slots=True)
class RecordWork(Work):
    """A record of an event."""

    kind: ClassVar[NodeType] = NodeType.EVENT_RECORD

    event: Event

    def command(self, stream: Stream) -> Command:
        return EventRecord(stream)

    def describe(self) -> str:
        return f"a record of event {self.event.handle:#x}"


@dataclass(frozen=True, slots=True)
class WaitWork(Work):
    """A wait for an event's latest record at the launch of the graph."""

    kind: ClassVar[NodeType] = NodeType.WAIT_EVENT

    event: Event

    def describe(self) -> str:
        return f"a wait for event {self.event.handle:#x}"


@dataclass(frozen=True, slots=True)
class ChildWork(Work):
    """A child graph, which belongs to the node alone."""

    kind: ClassVar[NodeType] = NodeType.GRAPH

    graph: Graph

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return (self.graph,)

    def copied(self, copy: Callable[[Graph], Graph]) -> Work:
        return ChildWork(copy(self.graph))

    def describe(self) -> str:
        return f"a child graph of {len(self.graph.nodes)} nodes"
