"""Cellar. Operations on executable graphs: instantiate, launch, update, destroy.

The lock of the graphs is held while an executable is made or changed, because it is compared with
its graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.handles import Handles
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.conditional_nodes import check_bodies
from cudasync.softgpu.core.graphs.executable_graph import GraphExec
from cudasync.softgpu.core.graphs.graph_update import (
    CAN_BE_DISABLED,
    UpdateRefused,
    UpdateResult,
    compared_alone,
    replace,
    with_attributes_of,
)
from cudasync.softgpu.core.graphs.memory_nodes import allocated_by
from cudasync.softgpu.core.graphs.node_parameters import ChildWork
from cudasync.softgpu.core.graphs.stream_capture import Capture
from cudasync.softgpu.core.graphs.user_objects import hold

if TYPE_CHECKING:
    from cudasync.softgpu.core.graphs.graph import Graph, Node
    from cudasync.softgpu.core.graphs.node_parameters import Work
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.streams import Stream

_AUTO_FREE, _UPLOAD, _DEVICE_LAUNCH, _NODE_PRIORITY = 1, 2, 4, 8


class Executables:
    """All executable graphs of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._executor = machine.executor
        self._known = self.made = Handles[GraphExec]("executable graph", code=INVALID_VALUE)

    def get(self, handle: int) -> GraphExec:
        """The executable of a handle."""
        return self._known.get(handle)

    def instantiate(self, graph: Graph, flags: int) -> GraphExec:
        """An executable copy of a graph."""
        with self._machine.graphs.lock:
            if flags & ~(_AUTO_FREE | _UPLOAD | _DEVICE_LAUNCH | _NODE_PRIORITY):
                raise DriverFailure(INVALID_VALUE, f"unknown flags {flags:#x}")
            if flags & _DEVICE_LAUNCH:
                raise DriverFailure(
                    NOT_SUPPORTED, "kernels cannot launch graphs: launch the graph from the host"
                )
            self._machine.captures.refuse_unsafe("an instantiation")
            self._machine.captures.refuse_graph(graph, "instantiated")
            if any(len(memory.holders) > 1 for memory in allocated_by(graph)):
                raise DriverFailure(
                    INVALID_VALUE,
                    "a graph that allocates memory has one executable at a time: destroy the other",
                )
            unused = [c for c in graph.conditions if not c.is_used]
            if unused:
                raise DriverFailure(
                    INVALID_VALUE,
                    f"no conditional node uses the handle {unused[0].handle:#x}: add the node",
                )
            check_bodies(graph)
            made = GraphExec(self._executor, graph, flags)
            hold(made.graph)
            if flags & _UPLOAD:
                made.upload()
            self._known.add(made.handle, made)
            return made

    def destroy(self, handle: int) -> None:
        """End an executable; enqueued launches are still done."""
        if self._executor.deferred.put_off(lambda: self.destroy(handle)):
            return
        self._known.remove(handle).release()

    def launch(self, executable: GraphExec, stream: Stream) -> None:
        """Enqueue a launch. A captured stream takes none, in no mode: its capture is invalid."""
        if isinstance(stream.capture, Capture):
            stream.capture.refuse(f"a launch of a graph on {stream.name}")
        for context in executable.contexts:
            self._machine.check(context)
        executable.launch(stream)

    def own_node(self, executable: GraphExec, handle: int) -> Node:
        """The executable's copy of a node."""
        found = executable.nodes.get(handle)
        if found is None:
            raise DriverFailure(
                INVALID_VALUE, "the executable was not instantiated from the node's graph"
            )
        return found

    def update(self, executable: GraphExec, graph: Graph) -> None:
        """cuGraphExecUpdate; UpdateRefused gives the reason of a refusal."""
        with self._machine.graphs.lock:
            executable.update(graph)
        executable.drop_replaced()

    def set_work(self, executable: GraphExec, handle: int, work: Work) -> None:
        """Give one node of an executable other parameters."""
        with self._machine.graphs.lock:
            node = self.own_node(executable, handle)
            if work.kind != node.work.kind:
                raise DriverFailure(
                    INVALID_VALUE,
                    f"the node is a {node.work.kind.name} node, not a {work.kind.name} node",
                )
            work = with_attributes_of(node.work, work)
            result = compared_alone(node.work, work)
            if result is not UpdateResult.SUCCESS:
                why = result.name.lower().replace("_", " ")
                raise DriverFailure(INVALID_VALUE, f"{node.work.describe()}: {why}")
            replace(node, work)

    def set_graph(self, executable: GraphExec, handle: int, graph: Graph) -> None:
        """Update a child graph of an executable from another graph."""
        with self._machine.graphs.lock:
            node = self.own_node(executable, handle)
            if not isinstance(node.work, ChildWork):
                raise DriverFailure(
                    INVALID_VALUE, f"the node is a {node.work.kind.name} node, not a child graph"
                )
            try:
                executable.update(graph, node.work.graph)
            except UpdateRefused as refusal:
                raise DriverFailure(INVALID_VALUE, str(refusal)) from refusal
        executable.drop_replaced()

    def enable(self, executable: GraphExec, handle: int, value: bool | None) -> bool:
        """Enable or disable a node (None: neither); return whether it is enabled."""
        node = self.own_node(executable, handle)
        if node.work.kind not in CAN_BE_DISABLED:
            raise DriverFailure(INVALID_VALUE, f"a {node.work.kind.name} node cannot be disabled")
        if value is not None:
            node.is_enabled = value
        return node.is_enabled
