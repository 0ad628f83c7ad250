"""Floor 2. One op: its function, its reads and writes, and its result or failure.

States: in the log, then planned, then running (host) or issued (device), then over. An op that its
planning worker runs at once skips "planned", since no other thread must know of it. The class of an
op determines its initial fields: see `op_classes`.

Rules for writes:
- `_claims` is a cell: the first thread in it runs or issues the op, and takes `_fn`; see `claim`;
- the thread that claimed the op writes `failure` and `_result`, before the op is over;
- the thread that ends the op sets `finished` after them; nobody unsets it;
- the first thread that asks for `_node` makes it: see `log.node`.
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
    from typing import TypeAlias, TypeVar
    from weakref import WeakMethod

    from cudasync.engine.device.timeline import Point
    from cudasync.engine.engine import Engine
    from cudasync.engine.failure import Failure
    from cudasync.engine.hazards.accesses import Accessed, Accesses
    from cudasync.engine.hazards.damage import Damage
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.hazards.variable import Var
    from cudasync.engine.host.repeated_ops import Resolved
    from cudasync.engine.log.node import Node, Place
    from cudasync.errors import OpError

    F = TypeVar("F", bound=Callable[..., Any])
    Salvage: TypeAlias = "WeakMethod[Callable[[Any], Any]]"
    # Regions only read; regions read and written; regions written, which may be among the read.
    Regions: TypeAlias = tuple[tuple[Region, ...], tuple[Region, ...], tuple[Region, ...]]


class OpKind(Enum):
    """The kind of an op decides where it runs: each kind of copy has streams of its own."""

    HOST = "host"
    KERNEL = "kernel"
    HTOD = "HtoD"
    DTOH = "DtoH"
    DTOD = "DtoD"
    WAIT = "wait"
    ALLOCATE = "allocate"
    FREE = "free"


# The slots that all ops share; a `PlainOp` stores the other fields differently. (They are not in
# the class itself, where mypy would take them for the only writable attributes.)
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

    # Rare fields are in the `__dict__` of a `FullOp`, which is made at the first such write.
    kind = OpKind.HOST
    priority = 0
    # True for an op without a function: see `op_classes`.
    is_fence = False
    # The place of issue, for device ops only.
    _point: Point | None = None
    # The predecessors of an op that was planned without a node: see `device.device_push`.
    _before: tuple[Op, ...] | None = None
    # Byte ranges; None if there are none.
    _regions: Regions | None = None
    # The accesses of an op that is pushed repeatedly: see `host.repeated_ops`.
    _resolved: Resolved | None = None
    # The accesses, with reasons, of a launch that took the long way.
    _said: Accesses | None = None
    # For a graph's segment under a profile: the start and end times of its nodes. On the host a
    # list of (node's site, start, end), by time.perf_counter; else an object that returns them.
    node_times: Any = None
    # For an op that failed in part: the data it left wrong. None means all that it writes.
    _damage: Damage | None = None
    # The positions of the steps of such an op that were left out: set before `_damage`.
    left_out: frozenset[int] = frozenset()
    # For an op of several steps: a weak reference to a method of an object that the op's function
    # has. So the steps end with the op, which may stay the last writer of its data. The method is
    # called with the op instead of its function if an input is wrong. It records the damage, and
    # raises nothing. On the host it runs the steps that do not need that input. For a device it
    # returns a function that enqueues them; None if there are none.
    _salvage: Salvage | None = None

    finished: bool
    failure: Failure | None
    # Position in the total order of pushes; 0 until planned.
    number: int
    name: str
    _engine: Engine
    # None once the claiming thread has taken it.
    _fn: Callable[..., Any] | None
    # A cell: the token of the thread that claimed the op. An interrupted thread sees in it whether
    # its claim succeeded.
    _claims: list[object]
    _reads: tuple[Var, ...]
    _writes: tuple[Var, ...]
    # The place that runs it once it is ready.
    _pool: Place
    # Written when the function has returned.
    _result: Any
    # Its plan and listeners; None until the first request.
    _node: Node | None
    # The push site: the code and the instruction in it; the line is computed on request.
    _code: CodeType
    _at: int

    @property
    def push_site(self) -> str:
        """ "file:line" of the push."""
        return site_of(self._code, self._at)

    @property
    def accesses(self) -> tuple[Accessed, ...]:
        """The accesses that order the op: byte ranges and variables, whether it reads and writes
        each, and the reason. Computed on request."""
        return accessed(self)

    @property
    def is_poisoned(self) -> bool:
        """True if the op failed or read data of a failed op, and the failure is not cleared."""
        failure = self.failure
        return failure is not None and not failure.cleared

    def done(self) -> bool:
        """True once the op has finished, failed or not. Never blocks; asks the driver once."""
        if not self.finished:
            self._pool.query(self)
        return self.finished

    def wait(self, timeout: float | None = None) -> None:
        """Block until the op has finished.

        Raises `OpError` if the op failed or was poisoned, `TimeoutError` after `timeout` seconds
        (the op continues). Raises `DeadlockError` if an op's function waits for an op that can only
        run or end after its own op.
        """
        self._wait_finished(timeout)
        if self.is_poisoned:
            assert self.failure is not None
            raise self.failure.error()

    def result(self, timeout: float | None = None) -> Any:
        """Wait, then return the result of the op's function. Errors as for `wait`."""
        self.wait(timeout)
        # A cleared failure is not raised, and the op has no result.
        return getattr(self, "_result", None)

    def exception(self, timeout: float | None = None) -> OpError | None:
        """Wait, then return the error that `wait` would raise, None if there is none."""
        self._wait_finished(timeout)
        return self.failure.error() if self.failure is not None and self.is_poisoned else None

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback()` once the op has finished: now if it has finished, else on the thread
        that finishes it, where it must not block. Exceptions of the callback are lost."""
        node = nodes.of(self)
        node.callbacks.append(callback)
        if self.finished:
            # The ender may have looked before the append: one of the two threads takes it.
            nodes.call_back(self, node)
        else:
            self._pool.watch(self)

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio  # Loads as slowly as the engine; a program that awaits has it already.

        loop = asyncio.get_running_loop()
        finished = loop.create_future()

        def settle() -> None:
            if not finished.done():
                finished.set_result(None)

        def wake() -> None:
            # If the loop is closed when the op finishes, nobody waits any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle)

        self.add_done_callback(wake)
        worker = current.worker_or_guest()
        # A loop that runs inside an op occupies a worker, and the awaited op may need a worker.
        with worker.pool.blocked(worker) if worker is not None else nullcontext():
            yield from finished.__await__()
        return self.result()

    def _wait_finished(self, timeout: float | None) -> None:
        if self.finished:
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        # If the op is over by now, its ender relies on this waiter to raise the failure.
        if not self._engine._wait_for(self, deadline) and not self.finished:
            raise TimeoutError(f"op {self.name!r} did not finish within {timeout} s")

    def __repr__(self) -> str:
        if self.finished:
            how = "failed" if self.failure is not None else "finished"
        else:
            how = "issued" if self._is_issued else "planned" if self.number else "pushed"
        return f"<Op {self.name!r} {self.kind.value} {how}>"

    @property
    def _is_issued(self) -> bool:
        return False


def salvaged(op: Op) -> Any:
    """Let an op of several steps, which the caller has claimed with its function, do without wrong
    inputs what it can: see `Op._salvage`."""
    salvage = op._salvage
    assert salvage is not None
    method = salvage()
    assert method is not None, "its function, which the claiming thread has, keeps it alive"
    return method(op)


def site_of(code: CodeType, at: int) -> str:
    """ "file:line" of the instruction at `at` of `code`."""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= at < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}"


# The code of all functions in which a thread other than a worker has a claimed op in hand, until
# the op is issued or over. Each has the op as its local `op`: see `lifecycle.left_ops`.
CLAIMANTS: set[CodeType] = set()


def claimant(function: F) -> F:
    """Note that `function` belongs to `CLAIMANTS`."""
    made: Any = function
    CLAIMANTS.add(made.__code__)
    return function


def claim(op: Op, token: object) -> Callable[..., Any] | None:
    """The op's function for exactly one caller; None for all others.

    `token` belongs to one thread. A second call with the winning token returns None.
    """
    claims = op._claims
    claims.append(token)
    if claims[0] is not token:
        return None
    fn = op._fn
    op._fn = None
    return fn


class WaiterToken(int):
    """The token of a thread that runs the op that it waits for: the thread's number, and one object
    for each such op."""

    __slots__ = ()


def is_claimed_by(op: Op, token: object) -> bool:
    """True if the thread with this token claimed `op`, also if it was interrupted in the claim."""
    claims = op._claims
    return bool(claims) and claims[0] is token
