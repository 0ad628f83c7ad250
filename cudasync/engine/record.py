"""Floor 2. What is kept of an op once somebody else has to do with it, and how ops end.

Most host ops are run by the worker that plans them and never have a `Record`. One is made for an op
that waits, is waited for, failed, or runs while another thread plans.

An op is over once `finished` is set; its result and failure are written by then. After that who was
waiting is told. Telling is harmless to repeat, so a thread that is suspended in the middle of it
can be stood in for: `tell_for_others`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from cudasync.atomic import Gate
from cudasync.engine import current

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.atomic import Bell
    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op

# The record of each op that is not over and has one: where threads agree on the first one made.
_RECORDS: dict[Op, Record] = {}
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

    def told(self, op: Op) -> None:
        """`op` need not be waited for any more. May come more than once."""


class Plan(Gate):
    """What an op has to come after; the first one made for an op is the one that holds.

    It does not matter which: two planners find the same ops, but for those that ended meanwhile.
    """

    __slots__ = ("before", "op", "sources")

    def __init__(self, op: Op, before: dict[Any, None], sources: tuple[Op, ...]) -> None:
        """`before` becomes the gate: it must be nobody else's."""
        # None once it is over: op, record and plan are else left to the garbage collector.
        self.op: Op | None = op
        # Ops that must come before this one and were not over when it was planned.
        self.before: tuple[Op, ...] = tuple(before)
        # Writers of what the op reads; if one fails, the op is poisoned.
        self.sources = sources
        before[PLANNING] = None
        super().__init__(before)

    def told(self, op: object) -> None:
        if self.arrive(op):
            waiting = self.op
            if waiting is not None:
                waiting._pool.put(waiting)


class Record:
    """Plan, listeners and sleepers of one op.

    Who wants to be told appends itself and then looks at `op.finished` (or whether it is issued);
    who ends the op sets that first and then goes through the list. So one of them sees the other;
    and if both do, the listener is told twice, which is harmless.
    """

    __slots__ = ("callbacks", "is_planned", "issue_listeners", "listeners", "plans", "sleepers")

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        # Set when planning is done with the op, for good.
        self.is_planned = False
        self.listeners: list[Listener] = []
        # Those who only need a device op to be issued: from then on the driver can wait.
        self.issue_listeners: list[Listener] = []
        self.sleepers: list[Bell] = []
        # An `Inbox`, written out: append, and pop the first.
        self.callbacks: list[Callable[[], None]] = []

    @property
    def plan(self) -> Plan | None:
        return self.plans[0] if self.plans else None


def of(op: Op) -> Record:
    """The record of `op`, made if need be: the first one made is the one that counts."""
    record = op._record
    if record is None:
        record = _RECORDS.setdefault(op, Record())
        if not op.finished:
            op._record = record
        if op.finished:
            # The first one may have gone from there already, and this be a second: it must not
            # take the place of the one that has the plan.
            _RECORDS.pop(op, None)
            return op._record or record
    return record


def plan_of(op: Op) -> Plan:
    """The plan of an op that is planned, has a record, and is not over."""
    assert op._record is not None
    return op._record.plans[0]


def before_of(op: Op) -> tuple[Op, ...]:
    """What `op`, which is planned and not over, has to come after."""
    return op._before if op._before is not None else plan_of(op).before


def is_planned(op: Op) -> bool:
    """True once nothing is left to do for the planner with `op`."""
    record = op._record
    return op.finished or op._before is not None or (record is not None and record.is_planned)


def finish(op: Op) -> None:
    """End `op`, whose result or failure is written. Harmless to repeat, also at the same time."""
    op.finished = True
    record = op._record
    if record is not None:
        tell(op, record)
    else:
        op._engine._registered.pop(op, None)


def tell(op: Op, record: Record) -> None:
    """Tell whoever waits for `op` that it is over."""
    for listener in record.listeners:
        listener.told(op)
    for listener in record.issue_listeners:
        listener.told(op)
    op._engine._registered.pop(op, None)
    _RECORDS.pop(op, None)
    # What it came before and after is history: else each op would keep all others alive.
    record.listeners, record.issue_listeners = [], []
    plan = record.plan
    if plan is not None:
        plan.before = plan.sources = ()
        plan.op = None
    if record.sleepers:
        for sleeper in list(record.sleepers):
            sleeper.ring()
    if record.callbacks:
        call_back(op, record)


def tell_for_others(engine: Engine) -> None:
    """Do for threads that are suspended what is left to do for ops that they have ended."""
    for op in list(engine._registered):
        if op.finished:
            finish(op)


def call_back(op: Op, record: Record) -> None:
    """Call the callbacks of an op that is over, each once."""
    while record.callbacks:
        try:
            callback = record.callbacks.pop(0)
        except IndexError:
            return
        # Its owner was told that an exception of it is lost.
        with suppress(Exception):
            current.call(op, callback)
