"""Floor 2. `Engine`, the public class: it takes pushes and schedules the ops.

A push makes an op and appends it to the log (see `log.combiner`). `host` and `device` decide which
thread runs the op, and when.
"""

from __future__ import annotations

import os
import time
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from cudasync.atomic import Tickets
from cudasync.driver.extensions.declared_accesses import is_checked
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.engine import current, general_push, waiters
from cudasync.engine.batch.push import push_many
from cudasync.engine.device.issue import Issuer
from cudasync.engine.device.ready import settle
from cudasync.engine.hazards.variable import resolve
from cudasync.engine.host.inline_execution import MOST_ELEMENTS
from cudasync.engine.host.pool import COPIERS, COPY_POOL, WorkerPool
from cudasync.engine.host.push import push, push_any
from cudasync.engine.ledger import Ledger
from cudasync.engine.lifecycle import closing, fork_and_exit, interrupts, refusal, shutdown
from cudasync.engine.lifecycle.interrupts import wait_for_all
from cudasync.engine.lifecycle.unhandled import Failures
from cudasync.engine.log import fences
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.log.entries import Adopt
from cudasync.engine.op_classes import DataFence
from cudasync.engine.replay import tape
from cudasync.engine.serial import SerialDispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from contextvars import Token
    from types import TracebackType

    from cudasync.driver.device import Device
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.op import Op, OpKind
    from cudasync.engine.op_classes import Fence
    from cudasync.engine.trace import Statistics, TraceEntry

Mode = Literal["async", "serial"]
_LOG = COMBINER.log
_TOLD = (
    "an earlier wait has raised this, and waitall() raises it until clear_errors() is called: call "
    "it once the failure is dealt with"
)


@unpicklable("make an Engine there")
class Engine:
    """Runs ops as soon as their reads and writes allow; the result is as if run in turn.

    `mode` is "async", or "serial" to run each op to its end inside `push`; the default is the value
    of CUDASYNC_ENGINE, else "async". `workers` threads run host ops (default: one per core);
    `pools` names further pools, for ops that block: `pools={"io": 16}`. A pool limits how many of
    its ops run at once, and workers of other pools may run its ops. But all ops of a pool of one
    worker run on one thread, unless one of them waits for an op, or the thread gets no processor
    for a second. With `max_in_flight`, a push waits while that many ops are unfinished.
    `trace=True` records when and where each op ran.

    With `replay=True` (default: CUDASYNC_REPLAY, else off) a loop of launches runs as a graph,
    without a change: launches that a thread repeats, of the same kernels on the same memory, are
    issued together, as one op. A launch may then wait for those behind it; a wait for any of them,
    a push of anything else, or some 100 ms of silence issue what there is. `replay_report()` says
    which loops are replayed.

    `streams` is the number of streams for kernels on each device, made at first need. By default it
    follows the program: four, and up to 32 while ops find the others at work. Copies in, copies
    out, and the ops of each priority have streams of their own. A device op follows its
    predecessors, or takes a free stream. If no stream is free, the op shares one, which
    `statistics()` counts. It shares with kernels and copies; it shares with work that may be held
    up (users' functions, waits for foreign streams, and their successors) only as a last resort.

    Any number of threads may push. As a context manager the engine is current inside, for the
    thread or task of the block (`use` says who inherits that). Leaving the block waits for all ops
    and closes the engine. It raises the first failure that nobody was told of, unless another
    exception is on its way; `waitall` also raises failures told before, until `clear_errors`. After
    Ctrl-C, leaving drops ops that have not begun, and waits a second for the rest. After another
    exception it waits for kernels while at least one op ends within each second. One line on stderr
    reports dropped, stopped and abandoned ops.
    """

    def __init__(
        self,
        mode: Mode | None = None,
        *,
        workers: int | None = None,
        pools: Mapping[str, int] | None = None,
        max_in_flight: int | None = None,
        streams: int | None = None,
        trace: bool = False,
        replay: bool | None = None,
    ) -> None:
        chosen = mode if mode is not None else os.environ.get("CUDASYNC_ENGINE") or "async"
        if chosen not in ("async", "serial"):
            raise ValueError(f"an engine's mode is 'async' or 'serial', not {chosen!r}")
        sizes = {"compute": os.cpu_count() or 1 if workers is None else workers, **(pools or {})}
        refusal.refuse_sizes(sizes, streams, max_in_flight)
        self.mode = chosen
        self._ledger = ledger = Ledger(trace=trace)
        self._failures = Failures()
        # On a serial engine only the pushing op is unfinished: it would wait for itself.
        self._max_in_flight = max_in_flight if chosen == "async" else None
        # Unfinished ops that were planned with a node, each with its function: what a function has
        # lives until the work that it enqueued is over, and no longer.
        self._registered: dict[Op, object] = {}
        self._last_fence: Callable[[], Fence | None] = lambda: None
        # The number of ops that were pushed inside ops.
        self._nested = Tickets()
        # Set by `close`; set when all has ended; set once ops that have not begun are dropped.
        self._is_closed = self._is_ended = self._is_dropped = False
        # The number of the close in the log, once the combiner has entered it.
        self._sealed_at = 0
        self._serial: SerialDispatcher | None = None
        self._pools: dict[str, Any] = {}
        self._issuer: Issuer | SerialDispatcher
        if chosen == "serial":
            self._serial = self._issuer = SerialDispatcher(ledger)
            self._pools = dict.fromkeys(sizes, self._serial)
        else:
            self._issuer = Issuer(
                ledger, fork_and_exit.close_all_first, streams=streams, timing=trace
            )
            owner = weakref.ref(self)
            self._pools = {n: WorkerPool(n, size, ledger, owner) for n, size in sizes.items()}
            copiers = WorkerPool("copy", COPIERS, ledger, owner)
            self._pools[COPY_POOL] = self._issuer.blocking = copiers
            if max_in_flight is not None:
                self._rank()
            # A sleeping thread refers to no engine, so a dropped engine can be collected.
            last = weakref.finalize(self, closing.dismiss, self._pools, self._issuer)
            last.atexit = False
        self._compute: Any = self._pools["compute"]
        # True while a push, or the push of a launch, needs none of the rare cases.
        self._is_plain = self._is_direct = chosen == "async" and not (trace or max_in_flight)
        self._replays = chosen == "async" and tape.is_wanted(replay)
        self._most_at_once = MOST_ELEMENTS  # of a result on the CPU: see `host.inline_execution`
        # True in checked mode, where launches take the long way.
        self._is_checked = is_checked()
        # The active `with` blocks: the end of the outermost waits, and raises the first failure.
        self._scopes: list[Token[Engine | None]] = []
        fork_and_exit.opened(self)

    push, push_many, _push_any = push, push_many, push_any

    def _pool_named(self, pool: str | None) -> Any:
        """The worker pool of that name. Raises ValueError if there is none."""
        if pool is not None and pool not in self._pools:
            known = ", ".join(repr(each) for each in list(self._pools) if each != COPY_POOL)
            raise ValueError(f"there is no worker pool {pool!r}: choose from {known}")
        return self._pools[pool or "compute"]

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
        is_blocking: bool = False,
    ) -> Op:
        """The push for the higher floors, which know the kind of work."""
        return general_push.push(
            self,
            fn,
            kind,
            reads,
            writes,
            name,
            priority,
            device,
            self._pools[pool],
            kernel=kernel,
            is_blocking=is_blocking,
        )

    def _rank(self) -> None:
        """From now on plan ops before choosing one: they have priorities or a limit."""
        self._is_plain = False
        for pool in list(self._pools.values()):
            pool.rank()

    def waitall(self, timeout: float | None = None) -> None:
        """Block until every op pushed so far has finished.

        Raises the `OpError` of the first failure that was not cleared, also if an earlier wait has
        raised it: until `clear_errors()`. Raises TimeoutError after `timeout` seconds.
        """
        self._drain(timeout)
        failure = self._failures.first()
        if failure is not None:
            raise failure.error(hint=_TOLD if failure.is_handled else "")

    def clear_errors(self) -> None:
        """Wait for all ops, then forget every failure: poisoned data is usable again.

        Data that a failed op should have written keeps its old value. After a device fault, arrays
        of that device are lost, and only a new process can use a GPU again (the software GPU:
        `Device.reset()`, called as well). Raises CudasyncError if a kernel
        still runs a second after Ctrl-C ended a wait: it may never end. Then no failure is
        forgotten.
        """
        wait_for_all(self)
        self._failures.clear()
        self._issuer.heal()

    def statistics(self) -> Statistics:
        """Counts since the engine was made, as of now: it asks the devices for their progress."""
        host_ops = self._ran
        COMBINER.plan()
        settle()
        self._issuer.look()
        # An op that is over was counted before; its thread may not have removed it yet.
        known = list(self._registered)
        unfinished = sum(not (op.finished or isinstance(op, DataFence)) for op in known)
        return self._ledger.counters.snapshot(host_ops, unfinished, self._issuer.tallies())

    def replay_report(self) -> str:
        """Which loops are replayed, a line for each thread that has launched something. For a
        thread without one, the first difference and its place. Never blocks."""
        return tape.report(self)

    def trace(self) -> list[TraceEntry]:
        """Wait for all ops, then return where and when each ran, in order of completion.

        On one clock, a device's or the host's, that is the order of `end_us`. Across clocks, an
        awaited op is before its waiter. Raises ValueError without `trace=True`.
        """
        if self._ledger.recorder is None:
            raise ValueError("this engine keeps no trace: make it with Engine(trace=True)")
        self._drain(None)
        return list(self._ledger.recorder.entries)

    def close(self) -> None:
        """Wait for all ops and end the workers and streams. Closing twice is harmless.

        `close` raises no failures. An `UnhandledFailureWarning` reports each failure that nobody
        was told of, except inside the engine's `with` block, whose end reports them.
        """
        closing.end(self)
        if not self._scopes:
            self._failures.end()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def __enter__(self) -> Engine:
        if self._is_closed:
            raise refusal.closed()
        self._scopes.append(current.enter(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current.leave(self._scopes)
        if not self._scopes:
            shutdown.leave_block(self, error)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._registered)} ops in flight"
        return f"<Engine {self.mode} {state}>"

    def _drain(self, timeout: float | None) -> None:
        """Wait until every op pushed so far, and each op they push, has finished or failed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if self._serial is None and not current.inside():
                if not self._registered and fences.is_idle(self):
                    return
                # Usually there are only ops on streams, and the last on each ends the others: no
                # fence, which is told of the end of each, and wakes a thread for each stream.
                waiters.wait_for_streams(self, deadline)
                if fences.is_idle(self):
                    return
            fences.wait_for_all(self, deadline)
        except KeyboardInterrupt:
            interrupts.note(self)
            raise

    # The interface for the rooms of the engine.

    def _mark(self, things: Any) -> Op:
        """An op that is over once the last writers of `things` are."""
        variables, regions = resolve(things, "reads")
        return fences.behind(self, variables, regions)

    def _adopt(self, region: Region, op: Op) -> None:
        """Let `op`, which allocated `region`, be its writer."""
        _LOG.append(self._ledger.adopted(Adopt(region, op)))

    def _blocking(self, op: Op) -> AbstractContextManager[None]:
        return nullcontext() if self._serial is None else self._serial.blocking(op)

    def _wait_for(self, op: Op, deadline: float | None) -> bool:
        return waiters.wait_for(op, deadline)

    def _refuse(self, op: Op, number: int) -> None:
        refusal.refuse(op, number)

    @property
    def _ran(self) -> int:
        """The number of host ops that ended without failing."""
        return sum(pool.ran for pool in dict.fromkeys(list(self._pools.values())))


def waitall(timeout: float | None = None) -> None:
    """`Engine.waitall` of the current engine."""
    engine().waitall(timeout)


engine, use = current.engine, current.use
current.make_with(Engine)
