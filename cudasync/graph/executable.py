"""Floor 3. An executable: a recorded program, made ready to be launched again and again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.driver.unpicklable import unpicklable
from cudasync.engine import current
from cudasync.engine.batch.union import Union
from cudasync.engine.log import fences
from cudasync.errors import ClosedError
from cudasync.graph.hazards import reduced
from cudasync.graph.parts import part_of
from cudasync.graph.parts.device import DevicePart
from cudasync.graph.segments import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from cudasync.engine import Op
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.graph.node import Node

_getframe = sys._getframe


@unpicklable("record and instantiate the graph there")
class Executable:
    """What `RecordedGraph.instantiate()` makes. Launches are ordered, with each other and with all
    else, by what the graph reads and writes. Close it, or leave a `with` block, to free it."""

    def __init__(self, nodes: Iterable[Node], said: Iterable[str] = ()) -> None:
        self.nodes = tuple(nodes)
        self._said = tuple(said)
        self.parts = [part_of(segment) for segment in cut(self.nodes)]
        self._is_closed = False
        # The push of the only part, where that is on a device: nothing else is to be asked.
        self._push_only: Callable[[Any, FrameType], Op] | None = None
        if len(self.parts) == 1 and isinstance(self.parts[0], DevicePart):
            self._push_only = self.parts[0].push
        union = Union()
        for node in self.nodes:
            union.add(node.hazards)
        self._accesses = union.accesses()
        (_, updated, written), _, variables = self._accesses
        self._written = list(variables), [*updated, *written]

    @property
    def accesses(self) -> Accesses:
        """What a launch reads from outside and what it writes, as of one op."""
        return self._accesses

    def launch(self) -> Op:
        """Push a launch: an op for each part. Returns at once, with an op that is over when all of
        them are; it is poisoned as what the graph writes is.

        Raises ClosedError once the executable, or the engine, is closed.
        """
        engine: Any = current.engine()
        if engine._is_direct and self._push_only is not None:
            return self._push_only(engine, _getframe(1))
        return self._launch(engine, _getframe(1))

    def _launch(self, engine: Any, frame: FrameType) -> Op:
        if self._is_closed:
            raise ClosedError("the executable was closed; instantiate the graph again")
        if engine.mode == "recording":
            ops = [engine.record_again(node) for node in self.nodes]
        else:
            ops = [part.push(engine, frame) for part in self.parts]
        op: Op = ops[-1] if ops else engine.push(_nothing, name="empty graph")
        is_one = len(ops) < 2 and not any(part.is_spread for part in self.parts)
        if is_one or engine.mode == "recording":
            return op
        return fences.mark(engine, *self._written)

    def report(self) -> str:
        """What instantiating made of the program: a line for each step of it."""
        return "\n".join([*self._said, *self._counts()])

    def _counts(self) -> list[str]:
        edges = sum(map(len, (node.before for node in self.nodes)))
        least = sum(map(len, reduced(self.nodes)))
        kinds = [type(part).__name__.removesuffix("Part").lower() for part in self.parts]
        spread = sum(part.is_spread for part in self.parts)
        said = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        return [
            f"nodes: {len(self.nodes)}, {edges} edges, {least} of them needed",
            f"segments: {len(self.parts)} ({said}), an op each for a launch"
            + (f"; {spread} spread over workers, an op for each node" if spread else ""),
        ]

    def close(self) -> None:
        """Free what it has on devices, once launches under way are over. Closing twice is harmless.

        Blocks until then.
        """
        if not self._is_closed:
            self._is_closed = True
            self._push_only = None
            for part in self.parts:
                part.close()

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        how = ", closed" if self._is_closed else ""
        return f"<Executable of {len(self.nodes)} nodes in {len(self.parts)} parts{how}>"


def _nothing() -> None:
    """A graph without nodes."""
