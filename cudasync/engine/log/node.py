"""Floor 2. The plan, listeners and sleepers of an op, and the end of ops.

The worker that plans a host op usually runs it, and the op never has a `Node`. A node is made for
an op that waits, is waited for, failed, or runs while another thread plans.

An op is over once `finished` is set; its result and failure are written before. After that its
waiters are notified. Notification is harmless to repeat, so other threads can notify for a
suspended one: `tell_for_others`.
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

# The nodes of unfinished ops: here threads agree on the first node made for an op.
_NODES: dict[Op, Node] = {}
# In the gate of a plan until the gate is a listener of all predecessors.
PLANNING: Final = object()


class Place(Protocol):
    """The taker of ready ops: a worker pool, the issuer of an engine, the serial engine."""

    def put(self, op: Op) -> None:
        """Take an op that nothing blocks. Never blocks; the same op may come repeatedly."""

    def query(self, op: Op) -> None:
        """Find out whether an op that runs elsewhere has ended. Never blocks."""

    def watch(self, op: Op) -> None:
        """Ensure that the end of an op is noticed without a query."""


class Listener(Protocol):
    """An object that is notified when an op is over, or issued."""

    def notify(self, op: Op) -> None:
        """`op` need not be waited for any more. May be called repeatedly."""


class Aside(Bell):
    """Wakes a thread that does not raise the op's failure."""

    __slots__ = ()


class JoinGate(Gate):
    """The predecessors of an op; the first gate made for an op counts.

    Any gate would do: two combiners find the same ops, except ops that ended meanwhile.
    """

    __slots__ = ("before", "op", "sources")

    def __init__(self, op: Op | None, before: dict[Any, None], sources: tuple[Op, ...]) -> None:
        """`before` becomes the gate: nobody else may use it."""
        # None once the op is over: else op, node and plan form a reference cycle.
        self.op: Op | None = op
        # The predecessors that were unfinished when the op was planned.
        self.before: tuple[Op, ...] = tuple(before)
        # Writers of the op's reads; if one fails, the op is poisoned.
        self.sources = sources
        before[PLANNING] = None
        # `Gate.__init__`, and below `Gate.arrive`, inlined.
        self._awaited = before

    def let_go(self) -> None:
        """The op is over, or has another plan: drop the references to its predecessors."""
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
    """The gate of an op that may run in part, or has a source that may fail in part."""

    __slots__ = ("origins",)

    def __init__(
        self, op: Op, before: dict[Any, None], sources: tuple[Op, ...], origins: Origins
    ) -> None:
        super().__init__(op, before, sources)
        self.origins = origins

    def let_go(self) -> None:
        super().let_go()
        self.origins = NOWHERE


# The gate of every op that nothing blocks or poisons: the planner of such an op puts it itself.
OPEN: Final = JoinGate(None, {}, ())


class Node:
    """JoinGate, listeners and sleepers of one op.

    A listener appends itself and then looks at `op.finished` (or whether the op is issued). The
    ender sets `finished` and then goes through the list. So one of the two threads sees the other;
    if both do, the listener is notified twice, which is harmless.
    """

    __slots__ = ("callbacks", "gates", "is_planned", "issue_listeners", "listeners", "sleepers")

    def __init__(self) -> None:
        self.gates: list[JoinGate] = []
        # Set for good when the op is planned.
        self.is_planned = False
        self.listeners: list[Listener] = []
        # Listeners for the issue of a device op: from then on the driver can wait.
        self.issue_listeners: list[Listener] = []
        self.sleepers: list[Bell] = []
        # An `Inbox`, inlined: append, and pop the first.
        self.callbacks: list[Callable[[], None]] = []

    @property
    def gate(self) -> JoinGate | None:
        return self.gates[0] if self.gates else None


def of(op: Op) -> Node:
    """The node of `op`, made if needed: the first node made counts."""
    node = op._node
    if node is None:
        node = _NODES.setdefault(op, Node())
        if not op.finished:
            op._node = node
        if op.finished:
            # The first node may have left `_NODES`, and this be a second: it must not replace the
            # node that has the plan.
            _NODES.pop(op, None)
            return op._node or node
    return node


def origins_of(op: Op) -> Origins:
    """The origins of the data that `op` reads. It is planned; it or a source has several steps."""
    gate = gate_of(op)
    assert isinstance(gate, TracedGate)
    return gate.origins


def gate_of(op: Op) -> JoinGate:
    """The plan of an op that is planned, has a node, and is not over."""
    assert op._node is not None
    return op._node.gates[0]


def before_of(op: Op) -> tuple[Op, ...]:
    """The predecessors of `op`, which is planned and not over."""
    return op._before if op._before is not None else gate_of(op).before


def is_ready(op: Op) -> bool:
    """True if `op` is planned and nothing blocks it any more, so that its place was told of it."""
    node = op._node
    if node is None or not node.is_planned or not node.gates or op.finished:
        return False
    gate = node.gates[0]
    return gate is OPEN or not gate._awaited


def waits_only_for(op: Op, other: Op) -> bool:
    """True if `op` is planned, and can begin as soon as the unfinished `other` is over."""
    node = op._node
    if node is None or not node.is_planned or not node.gates:
        return False
    before = node.gates[0].before
    return other in before and all(each is other or each.finished for each in before)


def is_planned(op: Op) -> bool:
    """True once the combiner has nothing left to do for `op`."""
    node = op._node
    return op.finished or op._before is not None or (node is not None and node.is_planned)


def finish(op: Op) -> None:
    """End `op`, after its result or failure is written. Harmless to repeat, also concurrently."""
    op.finished = True
    node = op._node
    if node is not None:
        tell(op, node)
    else:
        op._engine._registered.pop(op, None)


def tell(op: Op, node: Node) -> None:
    """Notify all waiters that `op` is over."""
    if op.failure is not None and _is_raised(node):
        # Now, since the engine may be closed before the sleepers are awake.
        op.failure.handle()
    # Copies, ordered with each append by the list's lock: see the table of pairs in DESIGN.md.
    for listener in node.listeners.copy():
        listener.notify(op)
    for listener in node.issue_listeners.copy():
        listener.notify(op)
    op._engine._registered.pop(op, None)
    _NODES.pop(op, None)
    # Drop the links to other ops: else each op would keep all others alive.
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
    """True if at least one sleeper raises the op's failure."""
    return not all(isinstance(each, Aside) for each in list(node.sleepers))


def tell_for_others(engine: Engine) -> None:
    """Finish the notifications of suspended threads for ops that they have ended."""
    for op in list(engine._registered):
        if op.finished:
            finish(op)


def call_back(op: Op, node: Node) -> None:
    """Call the callbacks of an op that is over, each once."""
    worker = current.worker()
    if worker is not None:
        # A callback may take long.
        worker.pass_on()
    while True:
        try:
            callback = node.callbacks.pop(0)
        except IndexError:
            return
        # Exceptions of callbacks are lost, as documented: also an exception that should end a
        # thread or a task, since this is neither.
        try:
            current.call(op, callback)
        except KeyboardInterrupt:
            if not current.is_ours():
                raise
        except BaseException:
            continue
