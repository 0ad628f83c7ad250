"""Floor 3, parts. A block that the engine runs: one op, which pushes the block's parts as ops."""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakMethod

from cudasync.engine import general_push
from cudasync.engine.hazards.damage import Damage
from cudasync.engine.log.node import origins_of
from cudasync.engine.op import OpKind
from cudasync.errors import ClosedError
from cudasync.graph.control.execution import Run
from cudasync.graph.parts.completion_variables import besides, followed, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cudasync.driver import Stream
    from cudasync.engine import Engine, Op
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.graph.control import Control
    from cudasync.graph.node import Node
    from cudasync.graph.parts import Part
    from cudasync.graph.parts.completion_variables import Between


class Body:
    """A program inside of a block: its parts, in an order in which no part needs a later one."""

    def __init__(self, parts: Sequence[Part], before: Sequence[Sequence[int]]) -> None:
        self.parts = tuple(parts)
        # For each part, the positions of the parts that it needs, and of those that need it.
        self.before = before
        self.behind: list[list[int]] = [[] for _ in parts]
        for at, needed in enumerate(before):
            for each in needed:
                self.behind[each].append(at)


@dataclass(frozen=True, eq=False)
class Work:
    """The work of a launch of a block. A pushed launch has its own reference, so closing is
    safe."""

    control: Control
    accesses: Accesses
    bodies: Sequence[Body]
    # The round of a block around it that it was written out for.
    rounds: str

    def run(self, op: Any) -> None:
        """Run the block. Raises the first failed step's exception."""
        run = Run(op._engine, Damage(), self.rounds)
        try:
            run.block(self)
        finally:
            run.close()
        if run.error is not None:
            op._step = run.said
            tell(run.damage, op, self.accesses)
            op._damage = run.damage
            raise run.error from run.error.__cause__

    def salvage(self, op: Any) -> None:
        """Run the steps that need none of the data that failed before this op."""
        damage = Damage.before(origins_of(op))
        tell(damage, op, self.accesses)
        run = Run(op._engine, damage, self.rounds)
        try:
            run.block(self)
        finally:
            run.close()
        # Only now: until then the op has damaged all that it writes.
        op._damage = damage

    def bound(self, op: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
        op._salvage = WeakMethod(self.salvage)
        return MethodType(fn, op)


class BlockPart:
    """A block: `repeat`, `while_loop` or `cond`, with the parts of the programs inside."""

    is_spread = was_spread = False

    def __init__(self, node: Node, bodies: Sequence[Body]) -> None:
        assert node.control is not None
        self.nodes = (node,)
        self.accesses, self.over = followed(node.hazards, node.name)
        self.name = node.name
        # None once it is closed.
        self._work: Work | None = Work(node.control, self.accesses, bodies, node.rounds)

    @property
    def work(self) -> Work:
        """The work of a launch. Raises ClosedError once the part is closed."""
        if self._work is None:
            raise ClosedError("the executable was closed: instantiate the graph again")
        return self._work

    def push(self, engine: Engine, frame: FrameType, between: Between | None = None) -> Op:
        (only_read, updated, written), reads, writes = self.accesses
        also_read, also_written = besides(between)
        work = self.work
        return general_push.push(
            engine,
            work.run,
            OpKind.HOST,
            (*only_read, *updated, *reads, *also_read),
            (*updated, *written, *writes, *also_written),
            self.name,
            self.nodes[0].priority,
            None,
            engine._pools["compute"],
            bind=work.bound,
        )

    def launch(self, stream: Stream) -> NoReturn:
        raise AssertionError("a block cannot run as work of a stream")

    def raise_if_gone(self) -> None:
        for body in self.work.bodies:
            for part in body.parts:
                part.raise_if_gone()

    def close(self) -> None:
        self._work = None
