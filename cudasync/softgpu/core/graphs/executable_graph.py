"""Cellar. Executable graphs: a private copy of a graph, and its launches as commands.

True of every launch:
- its start is enqueued before its nodes, and its nodes before its end;
- each node is enqueued after its dependencies;
- start and end lie in the launching stream;
- the start waits for the end of the executable's previous launch, so that the executable never
  runs twice at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from cudasync.locks import Lock
from cudasync.softgpu.core.driver_types.handles import new_handle
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.graphs.conditional_nodes import (
    Assignment,
    ConditionalType,
    ConditionalWork,
    Decision,
    conditions_of,
)
from cudasync.softgpu.core.graphs.graph_update import pairs, replace
from cudasync.softgpu.core.graphs.memory_nodes import MemoryVanishes, allocated_by
from cudasync.softgpu.core.graphs.memory_operation_nodes import BatchWork
from cudasync.softgpu.core.graphs.node_parameters import Nothing, RecordWork, WaitWork
from cudasync.softgpu.core.graphs.user_objects import exchanged, release_all, taken_from
from cudasync.softgpu.core.launch.kernel_launch import NodeLaunch
from cudasync.softgpu.core.streams.commands import Command, EventRecord, Step, Touched
from cudasync.softgpu.core.streams.streams import NON_BLOCKING, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.graphs.conditional_nodes import Condition
    from cudasync.softgpu.core.graphs.graph import Graph, Node
    from cudasync.softgpu.core.graphs.user_objects import Reference
    from cudasync.softgpu.core.scheduling.executor import Executor


T = TypeVar("T")

# CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.
_AUTO_FREE: Final = 1


class GraphExec:
    """A graph that can be launched."""

    def __init__(self, executor: Executor, source: Graph, flags: int) -> None:
        self.handle = new_handle()
        self.flags = flags
        self.source = source
        self.graph, self.nodes = source.copy()
        self.identity = self.graph.identity
        self.last: Command | None = None
        # The latest launch end that has run or is running; it then checks for pending releases.
        self.ended: Command | None = None
        self.is_destroyed = False
        self.executor = executor
        self._order: dict[Graph, list[Node]] = {}
        # Held while a launch is enqueued, so that two threads do not mix theirs.
        self._lock = Lock()
        self.order(self.graph)
        works = [node.work for node in self.graph.everything()]
        # The contexts of its nodes' memory and kernels; no update adds others.
        self.contexts = {work.context for work in works if work.context is not None}
        self._conditions = self.graph.all_conditions()
        for condition in self._conditions:
            condition.hold()
        self._assigned: list[Condition] | None = None
        # References that an update replaced while a launch was pending.
        self._replaced: list[Reference] = []
        self._allocates = allocated_by(self.graph)
        for memory in self._allocates:
            memory.holders.append(None)

    def order(self, graph: Graph) -> list[Node]:
        """The nodes of this or a nested graph, in the order in which they are enqueued.

        DriverFailure INVALID_VALUE if there is a cycle at any depth.
        """
        found = self._order.get(graph)
        if found is None:
            found = self._order[graph] = graph.order()
            for node in found:
                for inside in node.work.graphs:
                    self.order(inside)
        return found

    def launch(self, stream: Stream) -> None:
        """Enqueue a launch: its start, its nodes and its end."""
        with self._lock:
            self._free_before(stream)
            waits = () if self.last is None else (self.last,)
            start = self._start(stream)
            self.executor.enqueue(start, waits)
            lanes = Lanes(self, stream.context)
            try:
                leaves = lanes.enqueue(self.graph, [start])
                self.last = LaunchEnd(stream, self)
                self.executor.enqueue(self.last, leaves)
            finally:
                lanes.close()

    def upload(self) -> None:
        """Map the memory that launches will need."""
        for memory in self._allocates:
            memory.map()

    def _start(self, stream: Stream) -> Command:
        if self._assigned is None:
            self._assigned = [c for c in conditions_of(self.graph) if c.is_assigned]
        if self._assigned:
            return Assignment(stream, self._assigned)
        return Nothing(stream, "the start of a graph launch")

    def _free_before(self, stream: Stream) -> None:
        """Free memory of an earlier launch if AUTO_FREE is set; INVALID_VALUE if it is not."""
        for memory in self._allocates:
            if memory.is_out:
                if not self.flags & _AUTO_FREE:
                    raise DriverFailure(
                        INVALID_VALUE,
                        "free it before the next launch, or set AUTO_FREE: "
                        + memory.allocation.describe(),
                    )
                memory.give_back()
                waits = () if self.last is None else (self.last,)
                self.executor.enqueue(MemoryVanishes(stream, memory), waits)

    def update(self, other: Graph, own: Graph | None = None) -> None:
        """Update the executable from a graph of the same shape.

        UpdateRefused leaves it unchanged. With `own`, only this nested graph is updated.
        References to user objects that the update replaced wait for `drop_replaced`.
        """
        own = own or self.graph
        with self._lock:
            found = pairs(self, own, other)
            alike = [(own, other)]
            for node, twin in found:
                alike += zip(node.work.graphs, twin.work.graphs, strict=True)
                replace(node, twin.work)
            self._replaced += exchanged(alike)
            self._assigned = None
            for condition in conditions_of(self.graph):
                if condition not in self._conditions:
                    condition.hold()
                    self._conditions.append(condition)

    def release(self) -> None:
        """Release user objects and memory, now or when the last launch is done."""
        # This thread and the thread that ends the launch each store a flag, then read the other's.
        # At least one of them sees both and releases; if both do, each item is released once.
        self.is_destroyed = True
        if self._is_idle():
            self.let_go()

    def drop_replaced(self) -> None:
        """Drop the references that updates replaced, now or when the last launch is done."""
        if self._is_idle():
            release_all(_drained(self._replaced))

    def _is_idle(self) -> bool:
        last = self.last
        return last is None or last is self.ended or last.is_done

    def end_of_last(self, end: Command) -> None:
        """The last launch so far has ended: run the pending releases."""
        self.ended = end
        if self.is_destroyed:
            self.let_go()
        elif self._replaced:
            release_all(_drained(self._replaced))

    def let_go(self) -> None:
        """Drop all references to user objects and memory, once, even if two threads call it."""
        for memory in _drained(self._allocates):
            memory.leave()
        for condition in _drained(self._conditions):
            condition.release()
        release_all([*_drained(self._replaced), *taken_from(self.graph)])


def _drained(things: list[T]) -> Iterator[T]:
    """Take all items out of the list; of several threads, only one gets each item."""
    while things:
        try:
            yield things.pop()
        except IndexError:  # Another thread was faster.
            return


class LaunchEnd(Command):
    """The end of a launch."""

    __slots__ = ("launched",)

    def __init__(self, stream: Stream, launched: GraphExec) -> None:
        super().__init__(stream)
        self.launched = launched

    def run(self) -> Step:
        self._end()
        return Step.DONE

    def dropped(self) -> None:
        # The launch has stopped. The program's destructors must not run here, under the
        # executor's lock.
        if not self.launched.executor.deferred.put_off(self._end):
            self._end()

    def _end(self) -> None:
        if self.launched.last is self:
            self.launched.end_of_last(self)

    def touched(self) -> Touched:
        return Touched()

    def describe(self) -> str:
        return "the end of a graph launch"


class Lanes:
    """The hidden streams of one launch."""

    def __init__(self, launched: GraphExec, context: Context) -> None:
        self._launched = launched
        self._executor = launched.executor
        self._context = context
        self._lanes: dict[Stream, None] = {}

    def enqueue(self, graph: Graph, before: Sequence[Command]) -> list[Command]:
        """Enqueue a graph's nodes after `before`; return the commands that nothing waits for."""
        after: dict[Node, Sequence[Command]] = {}
        leaves: list[Command] = []
        for node in self._launched.order(graph):
            waits: Sequence[Command] = before
            if node.dependencies:
                waits = [command for other in node.dependencies for command in after[other]]
            after[node] = ends = self._enqueue_node(node, waits)
            if not node.dependents:
                leaves += ends
        return leaves or list(before)

    def _enqueue_node(self, node: Node, waits: Sequence[Command]) -> Sequence[Command]:
        work = node.work
        lane = self.lane(work.context or self._context, waits)
        if not node.is_enabled:
            disabled = Nothing(lane, f"disabled: {work.describe()}")
            self._executor.enqueue(disabled, waits)
            return (disabled,)
        if isinstance(work, ConditionalWork):
            return self._enqueue_conditional(work, lane, waits)
        if isinstance(work, BatchWork):
            row = work.commands(lane)
            for number, each in enumerate(row):
                self._executor.enqueue(each, () if number else waits)
            return row[-1:]
        command = work.command(lane)
        if isinstance(command, NodeLaunch):
            # A number in a nested graph would look like one of the whole graph.
            command.graph_node = node.number if node.graph is self._launched.graph else None
        if isinstance(work, WaitWork):
            self._executor.hold(lane, work.event)
        self._executor.enqueue(command, waits)
        if node.made_at:
            self._executor.note_node(command, node.made_at)
        if isinstance(work, RecordWork) and isinstance(command, EventRecord):
            work.event.record, work.event.since_us, work.event.captured = command, 0.0, None
        for inside in work.graphs:
            return self.enqueue(inside, (command,))
        return (command,)

    def _enqueue_conditional(
        self, work: ConditionalWork, lane: Stream, waits: Sequence[Command]
    ) -> Sequence[Command]:
        """Enqueue a decision, and a join that also waits for the selected body."""
        launched, executor = self._launched, self._executor
        join = Nothing(lane, f"the end of {work.describe()}")

        def follow(decision: Decision, body: Graph) -> None:
            lanes = Lanes(launched, work.where)
            try:
                leaves = lanes.enqueue(body, [decision])
                if work.type is ConditionalType.WHILE:
                    again = lanes.lane(work.where, leaves)
                    next_one = Decision(again, work, follow, decision.round + 1)
                    executor.enqueue(next_one, leaves)
                    leaves = [next_one]
                executor.also_wait(join, leaves)
            finally:
                lanes.close()

        decision = Decision(lane, work, follow)
        executor.enqueue(decision, waits)
        executor.enqueue(join)
        return (join,)

    def lane(self, context: Context, waits: Sequence[Command]) -> Stream:
        """A lane that ends with one of `waits`, or a new lane."""
        for command in waits:
            stream = command.stream
            if stream in self._lanes and stream.tail is command and stream.context is context:
                context.streams[stream] = None
                return stream
        made = Stream(context, flags=NON_BLOCKING, name="a lane of a graph launch")
        self._lanes[made] = None
        context.streams[made] = None
        return made

    def close(self) -> None:
        """Close the lanes: they go when they are empty."""
        with self._executor.lock:
            for lane in self._lanes:
                lane.is_closed = True
                if not lane.pending:
                    lane.context.streams.pop(lane, None)
