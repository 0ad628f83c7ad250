"""Floor 2. One op: a function, what it reads and writes, and how it ended.

Life: in the log, then planned, then running (host) or issued (device), then over. An op that is run
at once by the worker that plans it skips "planned": nobody else has to know of it.

What may be written by whom:
- `_fn` is there until the op is claimed; `del op._fn` is the claim, and succeeds once;
- `failure` and `_result` are written by whoever claimed the op, before it is over;
- `finished` is set after them, by whoever ends the op, and never taken back;
- `_record` is made by whoever asks for it first: see `record`.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Any

from cudasync.engine import current
from cudasync.engine import record as records

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import CodeType
    from typing import TypeAlias

    from cudasync.driver import Device
    from cudasync.engine.engine import Engine
    from cudasync.engine.failure import Failure
    from cudasync.engine.issue import Issuer
    from cudasync.engine.ranges import Region
    from cudasync.engine.record import Place, Record
    from cudasync.engine.timeline import Point
    from cudasync.engine.variable import Var
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
    ALLOCATE = "allocate"
    FREE = "free"


# The fields that all ops have in the same way; a `PlainOp` has the others in ways of its own. (Not
# in the class itself, where mypy would take them for all that can be written.)
_FIELDS = (
    "__weakref__",
    "_at",
    "_code",
    "_engine",
    "_fn",
    "_reads",
    "_record",
    "_result",
    "_writes",
    "finished",
    "name",
)


class Op:
    """An operation that was pushed: wait for it, ask whether it is done, take its result."""

    __slots__ = _FIELDS

    # What few ops have is in the `__dict__` of a `FullOp`, which is made when one is written.
    kind = OpKind.HOST
    priority = 0
    # Where it was issued: only a device op ever is.
    _point: Point | None = None
    # What it comes after, where it was planned without a record: see `at_once`.
    _before: tuple[Op, ...] | None = None
    # Byte ranges; None if there are none.
    _regions: Regions | None = None

    finished: bool
    failure: Failure | None
    # Position in the total order of pushes; 0 until planned.
    number: int
    name: str
    _engine: Engine
    _fn: Callable[..., Any]
    _reads: tuple[Var, ...]
    _writes: tuple[Var, ...]
    # Who runs it once it is ready.
    _pool: Place
    # Written when `_fn` has returned.
    _result: Any
    # What is kept of it for others; None while nobody has asked.
    _record: Record | None
    # Where it was pushed: the code and the instruction in it; the line is worked out when asked.
    _code: CodeType
    _at: int

    @property
    def push_site(self) -> str:
        """ "file:line" of the push."""
        line = self._code.co_firstlineno
        for start, end, number in self._code.co_lines():
            if start <= self._at < end and number is not None:
                line = number
        return f"{self._code.co_filename}:{line}"

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
        record = records.of(self)
        record.callbacks.append(callback)
        if self.finished:
            # Whoever ended it may have looked before: each callback is taken by one of the two.
            records.call_back(self, record)
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
        if not self._engine._wait_for(self, deadline):
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


class PlainOp(Op):
    """A function on variables, for the compute workers: what `Engine.push` mostly makes.

    It is written by it field by field, since a constructor would cost as much as the rest. Each
    field costs 10 ns, a part of them the garbage collector's; so what can be told without is left
    out. Only for these is that worth it: see `FullOp`.
    """

    __slots__ = ("_failure", "_number")

    @property
    def number(self) -> int:
        return getattr(self, "_number", 0)

    @number.setter
    def number(self, number: int) -> None:
        self._number = number

    @property
    def failure(self) -> Failure | None:
        return getattr(self, "_failure", None)

    @failure.setter
    def failure(self, failure: Failure | None) -> None:
        self._failure = failure

    @property
    def _pool(self) -> Place:  # type: ignore[override]
        place: Place = self._engine._compute
        return place


class FullOp(Op):
    """Any other op: its fields are all there from the start."""

    __slots__ = ("__dict__", "_pool", "failure", "number")


class DeviceOp(FullOp):
    """An op that enqueues work on a stream."""

    __slots__ = (
        "_before",
        "_device",
        "_kernel",
        "_outcome",
        "_point",
        "_regions",
        "kind",
    )

    kind: OpKind
    _regions: Regions | None
    _before: tuple[Op, ...] | None
    _device: Device
    _pool: Issuer
    # The kernel that it launches, where that is known: a device's fault report may name it.
    _kernel: str
    # True while its push is going to issue it itself: an allocation, whose address it needs.
    _is_owned = False
    # Where it was issued, and what can be waited for; None before and after.
    _point: Point | None
    # A cell: how it ended, as far as the device is concerned. The first to say so is believed.
    _outcome: list[tuple[Failure | None]]
    _is_watched = False

    @property
    def _is_issued(self) -> bool:
        return self._point is not None


class Marker(FullOp):
    """An op without a function: it is over as soon as what it reads is."""

    __slots__ = ()


class Fence(Marker):
    """A marker for everything that its engine was pushed before."""

    __slots__ = ()
