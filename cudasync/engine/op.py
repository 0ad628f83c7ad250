"""Floor 2. One op: a function, what it reads and writes, and how it ended.

Life: in the log, then planned, then running (host) or issued (device), then over. An op that is run
at once by the worker that plans it skips "planned": nobody else has to know of it. Which fields an
op has from the start depends on its class: see `op_classes`.

What may be written by whom:
- `_claims` is a cell: who is first in it runs or issues the op, and takes `_fn` out; see `claim`;
- `failure` and `_result` are written by whoever claimed the op, before it is over;
- `finished` is set after them, by whoever ends the op, and never taken back;
- `_node` is made by whoever asks for it first: see `log.node`.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Any

from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.engine import current
from cudasync.engine.hazards.accesses import accessed
from cudasync.engine.log import node as nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import CodeType
    from typing import TypeAlias

    from cudasync.engine.device.timeline import Point
    from cudasync.engine.engine import Engine
    from cudasync.engine.failure import Failure
    from cudasync.engine.hazards.accesses import Accessed, Accesses
    from cudasync.engine.hazards.damage import Damage
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.hazards.variable import Var
    from cudasync.engine.host.resolved import Resolved
    from cudasync.engine.log.node import Node, Place
    from cudasync.errors import OpError

    # What is only read; what is read and written; what is written, and may be among the read.
    Regions: TypeAlias = tuple[tuple[Region, ...], tuple[Region, ...], tuple[Region, ...]]


class OpKind(Enum):
    """What an op does, which decides where it runs: each kind of copy has streams of its own."""

    HOST = "host"
    KERNEL = "kernel"
    HTOD = "HtoD"
    DTOH = "DtoH"
    DTOD = "DtoD"
    WAIT = "wait"
    ALLOCATE = "allocate"
    FREE = "free"


# The fields that all ops have in the same way; a `PlainOp` has the others in ways of its own. (Not
# in the class itself, where mypy would take them for all that can be written.)
_FIELDS = (
    "__weakref__",
    "_at",
    "_claims",
    "_code",
    "_engine",
    "_fn",
    "_reads",
    "_node",
    "_result",
    "_writes",
    "finished",
    "name",
)


@unpicklable("send its result()")
class Op:
    """An operation that was pushed: wait for it, ask whether it is done, take its result."""

    __slots__ = _FIELDS

    # What few ops have is in the `__dict__` of a `FullOp`, which is made when one is written.
    kind = OpKind.HOST
    priority = 0
    # Where it was issued: only a device op ever is.
    _point: Point | None = None
    # What it comes after, where it was planned without a node: see `device.launching`.
    _before: tuple[Op, ...] | None = None
    # Byte ranges; None if there are none.
    _regions: Regions | None = None
    # Of one that is pushed again and again: what it accesses, see `host.resolved`.
    _resolved: Resolved | None = None
    # Of a launch that came by the long way: what it accesses, with the reasons.
    _said: Accesses | None = None
    # Of a graph's segment, while somebody watches who wants them: when its nodes began and ended.
    # On the host a list of (node, start, end), by time.perf_counter; else what can be asked for it.
    node_times: Any = None
    # Of one that failed in part: what it left wrong. None for all that it writes.
    _damage: Damage | None = None
    # Of one of several steps: called with it in place of its function where something that it reads
    # is wrong. Runs what does not need that, and says what the damage is. Raises nothing.
    _salvage: Callable[[Any], None] | None = None

    finished: bool
    failure: Failure | None
    # Position in the total order of pushes; 0 until planned.
    number: int
    name: str
    _engine: Engine
    # None once it was taken, by the one who is to call it.
    _fn: Callable[..., Any] | None
    # A cell: the token of whoever claimed the op. Who is interrupted can tell from it whether it
    # was already the one.
    _claims: list[object]
    _reads: tuple[Var, ...]
    _writes: tuple[Var, ...]
    # Who runs it once it is ready.
    _pool: Place
    # Written when the function has returned.
    _result: Any
    # What is kept of it for others; None while nobody has asked.
    _node: Node | None
    # Where it was pushed: the code and the instruction in it; the line is worked out when asked.
    _code: CodeType
    _at: int

    @property
    def push_site(self) -> str:
        """ "file:line" of the push."""
        return site_of(self._code, self._at)

    @property
    def accesses(self) -> tuple[Accessed, ...]:
        """What the op is ordered by: byte ranges and variables, whether it reads and writes each,
        and why that is said of it. Worked out when asked."""
        return accessed(self)

    @property
    def is_poisoned(self) -> bool:
        """True if it failed, or read what a failed op wrote, and that was not cleared since."""
        failure = self.failure
        return failure is not None and not failure.cleared

    def done(self) -> bool:
        """True once the op has finished, failed or not. Never blocks; asks the driver once."""
        if not self.finished:
            self._pool.query(self)
        return self.finished

    def wait(self, timeout: float | None = None) -> None:
        """Block until the op has finished.

        Raises `OpError` if it failed or was poisoned, `TimeoutError` when `timeout` seconds have
        passed first (the op goes on), `DeadlockError` if an op's function waits for what can only
        run or end after it.
        """
        self._wait_finished(timeout)
        if self.is_poisoned:
            assert self.failure is not None
            raise self.failure.error()

    def result(self, timeout: float | None = None) -> Any:
        """Wait, then return what the op's function returned. Errors as for `wait`."""
        self.wait(timeout)
        # A failure that was cleared is not raised, and left no result.
        return getattr(self, "_result", None)

    def exception(self, timeout: float | None = None) -> OpError | None:
        """Wait, then return the error that `wait` would raise, None if there is none."""
        self._wait_finished(timeout)
        return self.failure.error() if self.failure is not None and self.is_poisoned else None

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback()` once the op has finished: at once if it has, else on the thread that
        finishes it, where it must not block. An exception of the callback is lost."""
        node = nodes.of(self)
        node.callbacks.append(callback)
        if self.finished:
            # Whoever ended it may have looked before: each callback is taken by one of the two.
            nodes.call_back(self, node)
        else:
            self._pool.watch(self)

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio  # Takes as long to load as the engine; who awaits has it already.

        loop = asyncio.get_running_loop()
        finished = loop.create_future()

        def settle() -> None:
            if not finished.done():
                finished.set_result(None)

        def wake() -> None:
            # The loop may be closed by the time the op finishes: then nobody waits any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle)

        self.add_done_callback(wake)
        worker = current.worker()
        # A loop that runs inside an op keeps a worker, and the op may need one.
        with worker.pool.blocked(worker) if worker is not None else nullcontext():
            yield from finished.__await__()
        return self.result()

    def _wait_finished(self, timeout: float | None) -> None:
        if self.finished:
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        # Over by now: who ended it counts on this waiter to raise what it failed with.
        if not self._engine._wait_for(self, deadline) and not self.finished:
            raise TimeoutError(f"op {self.name!r} has not finished after {timeout} s")

    def __repr__(self) -> str:
        if self.finished:
            how = "failed" if self.failure is not None else "finished"
        else:
            how = "issued" if self._is_issued else "planned" if self.number else "pushed"
        return f"<Op {self.name!r} {self.kind.value} {how}>"

    @property
    def _is_issued(self) -> bool:
        return False


def site_of(code: CodeType, at: int) -> str:
    """ "file:line" of the instruction at `at` of `code`."""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= at < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}"


def claim(op: Op, token: object) -> Callable[..., Any] | None:
    """The op's function, for exactly one of all who call this; None for the others.

    `token` is of one thread alone. Who has it may ask twice, and gets nothing the second time.
    """
    claims = op._claims
    claims.append(token)
    if claims[0] is not token:
        return None
    fn = op._fn
    op._fn = None
    return fn


def is_claimed_by(op: Op, token: object) -> bool:
    """True if the thread with this token runs or issues `op`, whatever it remembers of it."""
    claims = op._claims
    return bool(claims) and claims[0] is token
