"""Floor 2. What is kept of an op once somebody else has to do with it, and how ops end.

Most host ops are run by the worker that plans them and never have a `Node`. One is made for an op
that waits, is waited for, failed, or runs while another thread plans.

An op is over once `finished` is set; its result and failure are written by then. After that who was
waiting is told. Telling is harmless to repeat, so a thread that is suspended in the middle of it
can be stood in for: `tell_for_others`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from cudasync.atomic import Bell, Gate
from cudasync.engine import current
from cudasync.engine.hazards.damage import NOWHERE, Origins

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op

# The node of each op that is not over and has one: where threads agree on the first one made.
_NODES: dict[Op, Node] = {}
# In the gate of a plan until all that the op waits for has been asked to tell.
PLANNING: Final = object()


class Place(Protocol):
    """Who takes ops that are ready: a worker pool, the issuer of an engine, the serial engine."""

    def put(self, op: Op) -> None:
        """Take an op that nothing blocks. Never blocks; the same op may come more than once."""

    def query(self, op: Op) -> None:
        """Find out whether an op that runs elsewhere has ended. Never blocks."""

    def watch(self, op: Op) -> None:
        """See to it that the end of an op is noticed without anybody asking."""


class Listener(Protocol):
    """What can be told that an op is over, or issued."""

    def notify(self, op: Op) -> None:
        """`op` need not be waited for any more. May come more than once."""


class Aside(Bell):
    """Wakes somebody who does not raise what the op failed with."""

    __slots__ = ()


class JoinGate(Gate):
    """What an op has to come after; the first one made for an op is the one that holds.

    It does not matter which: two combiners find the same ops, but for those that ended meanwhile.
    """

    __slots__ = ("before", "op", "sources")

    def __init__(self, op: Op | None, before: dict[Any, None], sources: tuple[Op, ...]) -> None:
        """`before` becomes the gate: it must be nobody else's."""
        # None once it is over: op, node and plan are else left to the garbage collector.
        self.op: Op | None = op
        # Ops that must come before this one and were not over when it was planned.
        self.before: tuple[Op, ...] = tuple(before)
        # Writers of what the op reads; if one fails, the op is poisoned.
        self.sources = sources
        before[PLANNING] = None
        # `Gate.__init__`, and below `Gate.arrive`, written out.
        self._awaited = before

    def let_go(self) -> None:
        """The op is over, or has another plan: what it came after is of no interest any more."""
        self.before = self.sources = ()
        self.op = None

    def notify(self, op: object) -> None:
        awaited = self._awaited
        awaited.pop(op, None)
        if not awaited:
            waiting = self.op
            if waiting is not None:
                waiting._pool.put(waiting)


class TracedGate(JoinGate):
    """That of an op that may run in part, or one of whose sources may fail in part."""

    __slots__ = ("origins",)

    def __init__(
        self, op: Op, before: dict[Any, None], sources: tuple[Op, ...], origins: Origins
    ) -> None:
        super().__init__(op, before, sources)
        self.origins = origins

    def let_go(self) -> None:
        super().let_go()
        self.origins = NOWHERE


# The gate of every op that nothing blocks and nothing poisons: who plans such an op puts it itself.
OPEN: Final = JoinGate(None, {}, ())


class Node:
    """JoinGate, listeners and sleepers of one op.

    Who wants to be told appends itself and then looks at `op.finished` (or whether it is issued);
    who ends the op sets that first and then goes through the list. So one of them sees the other;
    and if both do, the listener is told twice, which is harmless.
    """

    __slots__ = ("callbacks", "gates", "is_planned", "issue_listeners", "listeners", "sleepers")

    def __init__(self) -> None:
        self.gates: list[JoinGate] = []
        # Set when planning is done with the op, for good.
        self.is_planned = False
        self.listeners: list[Listener] = []
        # Those who only need a device op to be issued: from then on the driver can wait.
        self.issue_listeners: list[Listener] = []
        self.sleepers: list[Bell] = []
        # An `Inbox`, written out: append, and pop the first.
        self.callbacks: list[Callable[[], None]] = []

    @property
    def gate(self) -> JoinGate | None:
        return self.gates[0] if self.gates else None


def of(op: Op) -> Node:
    """The node of `op`, made if need be: the first one made is the one that counts."""
    node = op._node
    if node is None:
        node = _NODES.setdefault(op, Node())
        if not op.finished:
            op._node = node
        if op.finished:
            # The first one may have gone from there already, and this be a second: it must not
            # take the place of the one that has the plan.
            _NODES.pop(op, None)
            return op._node or node
    return node


def origins_of(op: Op) -> Origins:
    """Where what `op` reads came from. It is planned, and it or a source is of several steps."""
    gate = gate_of(op)
    assert isinstance(gate, TracedGate)
    return gate.origins


def gate_of(op: Op) -> JoinGate:
    """The plan of an op that is planned, has a node, and is not over."""
    assert op._node is not None
    return op._node.gates[0]


def before_of(op: Op) -> tuple[Op, ...]:
    """What `op`, which is planned and not over, has to come after."""
    return op._before if op._before is not None else gate_of(op).before


def is_planned(op: Op) -> bool:
    """True once nothing is left to do for the combiner with `op`."""
    node = op._node
    return op.finished or op._before is not None or (node is not None and node.is_planned)


def finish(op: Op) -> None:
    """End `op`, whose result or failure is written. Harmless to repeat, also at the same time."""
    op.finished = True
    node = op._node
    if node is not None:
        tell(op, node)
    else:
        op._engine._registered.pop(op, None)


def tell(op: Op, node: Node) -> None:
    """Tell whoever waits for `op` that it is over."""
    if op.failure is not None and _is_raised(node):
        # Also if somebody closes the engine before they are awake.
        op.failure.handle()
    # Copies, which meet each append in the list's own lock: see the table of pairs in DESIGN.md.
    for listener in node.listeners.copy():
        listener.notify(op)
    for listener in node.issue_listeners.copy():
        listener.notify(op)
    op._engine._registered.pop(op, None)
    _NODES.pop(op, None)
    # What it came before and after is history: else each op would keep all others alive.
    if node.listeners:
        node.listeners = []
    if node.issue_listeners:
        node.issue_listeners = []
    gates = node.gates
    if gates and (gate := gates[0]) is not OPEN:
        gate.let_go()
    for sleeper in node.sleepers.copy():
        sleeper.ring()
    if node.callbacks.copy():
        call_back(op, node)


def _is_raised(node: Node) -> bool:
    """True if one of those who sleep raises what the op failed with."""
    return not all(isinstance(each, Aside) for each in list(node.sleepers))


def tell_for_others(engine: Engine) -> None:
    """Do for threads that are suspended what is left to do for ops that they have ended."""
    for op in list(engine._registered):
        if op.finished:
            finish(op)


def call_back(op: Op, node: Node) -> None:
    """Call the callbacks of an op that is over, each once."""
    while True:
        try:
            callback = node.callbacks.pop(0)
        except IndexError:
            return
        # Its owner was told that an exception of it is lost: also one that means to end a thread or
        # a task, since this is neither.
        try:
            current.call(op, callback)
        except KeyboardInterrupt:
            if not current.is_ours():
                raise
        except BaseException:
            continue
