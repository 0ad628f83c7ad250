"""Floor 3. An instance of a graph: its nodes on certain memory, made ready to be pushed.

An executable has an instance for each of its latest sets of arguments. An instance never changes,
so later updates do not affect launches under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.batch.union import Union
from cudasync.engine.log import fences
from cudasync.graph.buffers import Buffers
from cudasync.graph.launch_state import brought, states_of
from cudasync.graph.parts import part_of
from cudasync.graph.parts.device import DevicePart
from cudasync.graph.parts.host import HostPart
from cudasync.graph.segments import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import FrameType

    from cudasync.engine import Op
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.variable import Var
    from cudasync.graph.executable_reuse import Shelf
    from cudasync.graph.node import Node
    from cudasync.graph.parts.completion_variables import Between
    from cudasync.graph.staging import Staged


class Instance:
    """Nodes, cut into parts, and the arguments that are copied in and out."""

    def __init__(
        self,
        nodes: Iterable[Node],
        said: Iterable[str] = (),
        staged: Iterable[Staged] = (),
        shelf: Shelf | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self.said = tuple(said)
        self.staged = tuple(staged)
        self.parts = [part_of(segment, shelf) for segment in cut(self.nodes)]
        self._buffers = Buffers(self.nodes)
        # What a launch must bring to memory first.
        self.states = states_of(self.nodes)
        # The push of the only part, if a launch needs no other check; None before the first launch.
        self.push_only: Callable[[Any, FrameType], Op] | None = None
        self._push_only = self.push_only
        if len(self.parts) == 1 and not self.staged and not self._buffers and not self.states:
            part = self.parts[0]
            if isinstance(part, HostPart) or (isinstance(part, DevicePart) and part.is_direct):
                self._push_only = part.push_only
        self.accesses = accesses_of(self.nodes)
        (_, updated, written), _, variables = self.accesses
        outside = [region for each in self.staged for region in each.regions[1]]
        self._written = list(variables), [*updated, *written, *outside]

    def let_push_only(self) -> None:
        """Take the short way from now on, if there is one."""
        self.push_only = self._push_only

    def push(
        self,
        engine: Any,
        frame: FrameType,
        values: Mapping[str, Any],
        between: Between | None = None,
    ) -> Op:
        """Push all parts, with these values for arguments, whose addresses are this instance's.
        Returns an op that is over when all parts are."""
        self.raise_if_gone()
        if self.states:
            with brought(self.states):
                return self._push_parts(engine, frame, values, between)
        return self._push_parts(engine, frame, values, between)

    def _push_parts(
        self,
        engine: Any,
        frame: FrameType,
        values: Mapping[str, Any],
        between: Between | None,
    ) -> Op:
        ops = [op for each in self.staged for op in each.copy_in(engine, values, between)]
        ops += [part.push(engine, frame, between) for part in self.parts]
        ops += [op for each in self.staged for op in each.copy_out(engine, values, between)]
        op: Op = ops[-1] if ops else engine.push(_nothing, name="empty graph")
        is_one = len(ops) < 2 and not any(part.was_spread for part in self.parts)
        if is_one:
            return op
        variables, regions = self._written
        return fences.behind(engine, [*variables, *self._over()], regions)

    def _over(self) -> list[Var]:
        return [variable for part in self.parts for variable in part.over]

    def raise_if_gone(self) -> None:
        """Raise ClosedError if anything that a launch needs was closed, freed, or lost in a reset
        of its device."""
        self._buffers.raise_if_closed()
        for part in self.parts:
            part.raise_if_gone()

    def close(self) -> None:
        """Drop its references to resources on devices; pushed launches still have theirs."""
        self.push_only = self._push_only = None
        for part in self.parts:
            part.close()


def accesses_of(nodes: Iterable[Node]) -> Accesses:
    """The outer reads and the writes of nodes, as of one op."""
    union = Union()
    for node in nodes:
        union.add(node.hazards)
    return union.accesses()


def _nothing() -> None:
    """A graph without nodes."""
