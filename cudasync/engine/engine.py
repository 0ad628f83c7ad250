"""Floor 2. The engine: push ops, it works out the rest.

`Engine` is the public door. A push makes an op and appends it to the log (see `planner`); who runs
it, and when, is the affair of `workers` and `issue`.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from contextlib import nullcontext
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

from cudasync.atomic import Tickets
from cudasync.driver import Device
from cudasync.engine import current, issue, leaving, markers, pushing, refusal, waiting
from cudasync.engine import record as records
from cudasync.engine.foreign import await_strangers
from cudasync.engine.issue import Issuer
from cudasync.engine.ledger import Ledger
from cudasync.engine.op import Marker, Op, OpKind, PlainOp
from cudasync.engine.planner import PLANNER, Adopt, Close
from cudasync.engine.serial import SerialDispatcher
from cudasync.engine.variable import Var, as_tuple, resolve
from cudasync.engine.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from cudasync.engine.ranges import Region
    from cudasync.engine.trace import Statistics, TraceEntry

Mode = Literal["async", "serial"]
_LOG = PLANNER.log
_maybe_inside = current.maybe_inside
_getframe = sys._getframe


class Engine:
    """Runs ops as soon as what they read and write allows; the result is as if run in turn.

    `mode` is "async", or "serial" to run each op to its end inside `push`; left out, it is what
    CUDASYNC_ENGINE says, else "async". `workers` threads run host ops (default: one per core);
    `pools` names further pools, for ops that block: `pools={"io": 16}`. With `max_in_flight`, a
    push waits while that many ops are unfinished. `streams` is how many streams kernels may use
    on each device. `trace=True` records when and where each op ran.

    Any number of threads may push. As a context manager it is the current engine inside; leaving
    waits for all of its ops, closes it, and raises the first failure unless another exception is
    on its way. Left by Ctrl-C, it drops what has not begun.
    """

    def __init__(
        self,
        mode: Mode | None = None,
        *,
        workers: int | None = None,
        pools: Mapping[str, int] | None = None,
        max_in_flight: int | None = None,
        streams: int = 4,
        trace: bool = False,
    ) -> None:
        chosen = mode if mode is not None else os.environ.get("CUDASYNC_ENGINE") or "async"
        if chosen not in ("async", "serial"):
            raise ValueError(f"an engine is 'async' or 'serial', not {chosen!r}")
        sizes = {"compute": os.cpu_count() or 1 if workers is None else workers, **(pools or {})}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"worker pool {name!r} needs at least 1 worker, not {size}")
        if streams < 1:
            raise ValueError(f"streams must be at least 1, not {streams}")
        if max_in_flight is not None and max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight}")
        self.mode = chosen
        self._ledger = ledger = Ledger(trace=trace)
        self._max_in_flight = max_in_flight
        # Ops that were planned with a record and are not over.
        self._registered: dict[Op, None] = {}
        # How many ops were pushed from inside of ops.
        self._nested = Tickets()
        # Set by `close`; when all has ended; once what has not begun is dropped.
        self._is_closed = self._is_ended = self._is_dropped = False
        # The number of the close in the log, once the planner has come upon it.
        self._sealed_at = 0
        self._serial: SerialDispatcher | None = None
        self._pools: dict[str, Any] = {}
        self._issuer: Issuer | SerialDispatcher
        if chosen == "serial":
            self._serial = self._issuer = SerialDispatcher(ledger)
            self._pools = dict.fromkeys(sizes, self._serial)
        else:
            self._issuer = Issuer(ledger, leaving.close_all_first, streams=streams, timing=trace)
            owner = weakref.ref(self)
            self._pools = {
                name: WorkerPool(name, size, ledger, owner) for name, size in sizes.items()
            }
            if max_in_flight is not None:
                self._rank()
            # No thread refers to the engine while it sleeps, so one that is dropped can go.
            last = weakref.finalize(self, _dismiss, list(self._pools.values()), self._issuer)
            last.atexit = False
        self._compute: Any = self._pools["compute"]
        # True while a push has nothing to think of but its op.
        self._is_plain = chosen == "async" and not trace and max_in_flight is None
        # True while the push of a launch has nothing to think of but its op.
        self._is_direct = self._is_plain
        self._scope: AbstractContextManager[Engine] | None = None
        leaving.engines.add(self)

    def push(
        self,
        fn: Callable[..., Any],
        reads: Any = (),
        writes: Any = (),
        name: str | None = None,
        priority: int = 0,
        device: Device | None = None,
        pool: str | None = None,
    ) -> Op:
        """Push an op: `fn()` on a host worker, or with `device=`, `fn(stream)` that enqueues work.

        `reads` and `writes` take variables, device arrays and views, and NumPy arrays, one or a
        sequence. What is in both is read, then written; what is in `writes` alone is
        overwritten, so the op does not need its old value and runs even if that is poisoned. A
        view with gaps counts as its span, and is never written alone: what lies between stays.
        Larger `priority` goes first among ops that are ready. `pool` names the worker pool of a
        host op.

        Returns at once (except for `max_in_flight`, and on a serial engine). Errors of `fn` are
        raised by whoever waits. Raises TypeError and ValueError for wrong arguments, ClosedError
        after `close`.
        """
        # This is what every host op pays: no call that can be spared, the rare cases elsewhere. A
        # loop costs an iterator, so a single thing is unpacked; a default of what can be given by
        # keyword only costs a look into a dict, so all can be given by position.
        if device is not None or pool is not None or priority or not self._is_plain:
            return self._push_any(fn, reads, writes, name, priority, device, pool)
        if fn.__class__ is not FunctionType:
            name = pushing.name_of(fn, name)
        if reads.__class__ is not tuple:
            reads = tuple(reads) if reads.__class__ is list else as_tuple(reads)
        if reads:
            if len(reads) == 1:
                (each,) = reads
                if each.__class__ is not Var:
                    return self._push_any(fn, reads, writes, name, priority, device, pool)
            else:
                for each in reads:
                    if each.__class__ is not Var:
                        return self._push_any(fn, reads, writes, name, priority, device, pool)
        if writes.__class__ is not tuple:
            writes = tuple(writes) if writes.__class__ is list else as_tuple(writes)
        written = None
        if writes:
            if len(writes) == 1:
                (written,) = writes
                if written.__class__ is not Var:
                    return self._push_any(fn, reads, writes, name, priority, device, pool)
            else:
                for each in writes:
                    if each.__class__ is not Var:
                        return self._push_any(fn, reads, writes, name, priority, device, pool)
        frame = _getframe(1)
        op = PlainOp()
        op.finished = False
        op.name = fn.__name__ if name is None else name
        op._engine = self
        op._fn = fn
        op._reads = reads
        op._writes = writes
        op._record = None
        op._code = frame.f_code
        op._at = frame.f_lasti
        if _maybe_inside() is not None:
            self._nested.next()
        # `Log.append`, written out.
        segment = _LOG.tail
        segment.append(op)
        if segment.is_sealed:
            _LOG.append_again(segment, op)
        # Only now: whoever sees that a write was counted comes after it.
        if written is not None:
            next(written._written)
        elif writes:
            for each in writes:
                next(each._written)
        compute = self._compute
        if not compute.eyes and compute.is_silent():
            compute.ring()
        if self._is_closed:
            refusal.raise_if_refused(op)
        return op

    def _push_any(
        self,
        fn: Callable[..., Any],
        reads: Any,
        writes: Any,
        name: str | None,
        priority: int,
        device: Device | None,
        pool: str | None,
    ) -> Op:
        """`push` for whatever is not just a call on variables."""
        name = pushing.name_of(fn, name)
        if device is not None and pool is not None:
            raise ValueError("pool= is for host ops; a device op runs on a stream")
        if device is not None and not isinstance(device, Device):
            raise TypeError(f"device= takes a Device, not {type(device).__name__}")
        if pool is not None and pool not in self._pools:
            known = ", ".join(map(repr, self._pools))
            raise ValueError(f"there is no worker pool {pool!r}; this engine has {known}")
        await_strangers(self, reads, writes)
        kind = OpKind.HOST if device is None else OpKind.KERNEL
        place = self._pools[pool or "compute"]
        return pushing.push(
            self, fn, kind, reads, writes, name, priority, device, place, is_users=True
        )

    def _push(
        self,
        fn: Callable[..., Any],
        kind: OpKind,
        *,
        reads: Any = (),
        writes: Any = (),
        name: str,
        priority: int = 0,
        device: Device | None = None,
        pool: str = "compute",
        kernel: str = "",
    ) -> Op:
        """The push of the floors above, which know what kind of work it is."""
        return pushing.push(
            self, fn, kind, reads, writes, name, priority, device, self._pools[pool], kernel=kernel
        )

    def _rank(self) -> None:
        """From now on ops are planned before one is chosen: they differ in priority, or count."""
        self._is_plain = False
        for pool in self._pools.values():
            pool.rank()

    def waitall(self, timeout: float | None = None) -> None:
        """Block until every op pushed so far has finished.

        Raises the `OpError` of the first failure that was not cleared, and TimeoutError when
        `timeout` seconds have passed first.
        """
        self._drain(timeout)
        failure = self._ledger.first_failure()
        if failure is not None:
            raise failure.error()

    def clear_errors(self) -> None:
        """Wait for all ops, then forget every failure: what was poisoned is usable again.

        Data that a failed op should have written holds what it held. After a device fault, call
        `Device.reset()` as well; arrays of that device are lost.
        """
        self._drain(None)
        self._ledger.clear_failures()
        self._issuer.heal()

    def statistics(self) -> Statistics:
        """Counts of ops, events and waits since the engine was made."""
        host_ops = self._ran
        PLANNER.plan()
        issue.settle()
        unfinished = sum(not isinstance(op, Marker) for op in list(self._registered))
        return self._ledger.counters.snapshot(host_ops, unfinished, self._issuer.tallies())

    def trace(self) -> list[TraceEntry]:
        """What ran where and when, in order of completion; waits for all ops first.

        Raises ValueError unless the engine was made with `trace=True`.
        """
        if self._ledger.recorder is None:
            raise ValueError("this engine keeps no trace; make it with Engine(trace=True)")
        self._drain(None)
        return list(self._ledger.recorder.entries)

    def close(self) -> None:
        """Wait for all ops and end the workers and streams. Failures are not raised here.

        Closing twice is harmless.
        """
        if self._is_ended:
            return
        self._drain(None)
        self._is_closed = True
        self._is_plain = self._is_direct = False
        # What is in the log before this is waited for, what comes after it is refused.
        _LOG.append(Close(self))
        PLANNER.plan()
        self._drain(None)
        for pool in dict.fromkeys(self._pools.values()):
            pool.close()
        if self._serial is None:
            self._issuer.close()
        records.tell_for_others(self)
        self._is_ended = True
        leaving.engines.discard(self)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def __enter__(self) -> Engine:
        if self._is_closed:
            raise refusal.closed()
        self._scope = current.use(self)
        return self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._scope is not None
        self._scope.__exit__(kind, error, traceback)
        if isinstance(error, KeyboardInterrupt):
            leaving.drop(self)
        self.close()
        failure = self._ledger.first_failure()
        if failure is not None and error is None:
            raise failure.error()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._registered)} ops in flight"
        return f"<Engine {self.mode} {state}>"

    def _drain(self, timeout: float | None) -> None:
        """Wait until every op pushed so far, and what these push, has finished, failed or not."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            nested = self._nested.taken
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            markers.fence(self)._wait_finished(left)
            if self._nested.taken == nested:
                return

    # What the parts below ask of their engine.

    def _mark(self, things: Any) -> Op:
        """An op that is over once the last writers of `things` are."""
        variables, regions = resolve(things, "reads")
        return markers.mark(self, variables, regions)

    def _adopt(self, region: Region, op: Op) -> None:
        """Let `op`, which allocated `region`, be its writer."""
        _LOG.append(Adopt(region, op))

    def _blocking(self, op: Op) -> AbstractContextManager[None]:
        return nullcontext() if self._serial is None else self._serial.blocking(op)

    def _wait_for(self, op: Op, deadline: float | None) -> bool:
        return waiting.wait_for(op, deadline)

    def _refuse(self, op: Op, number: int) -> None:
        refusal.refuse(op, number)

    @property
    def _ran(self) -> int:
        """How many host ops have run to their end without failing."""
        return sum(pool.ran for pool in dict.fromkeys(self._pools.values()))


def engine() -> Engine:
    """The current engine: of the innermost `with`, else one for the whole process."""
    return current.engine()


def use(engine: Engine) -> AbstractContextManager[Engine]:
    """Make `engine` current inside a `with` block, without closing it at the end."""
    return current.use(engine)


def waitall(timeout: float | None = None) -> None:
    """`Engine.waitall` of the current engine."""
    engine().waitall(timeout)


def _dismiss(pools: list[WorkerPool], issuer: Issuer) -> None:
    """The engine is gone, and so are its ops: let its threads end. Runs in a finaliser."""
    for pool in pools:
        pool.dismiss()
    issuer.dismiss()


current.make_with(Engine)
