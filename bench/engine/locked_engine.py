"""The engine's rival: the same idea with one lock, made as fast as possible.

Variables have a last writer and the reads since. Ops have edges to predecessors. There is a ready
queue, worker threads, and a waiter that helps. One lock protects the bookkeeping, and is never held
while an op runs. A worker records an op's end and takes its next op under one hold of the lock. A
thread that finds work left over wakes one sleeper, which may wake the next. So a short op does not
wake all of them.

It does less than the engine: no byte ranges, priorities, devices, poison, results or push sites. An
op is a list, and everything used at every push is a closure variable, because attributes cost more.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The items of an op. AFTER, the ops that wait for this op, is None once it has finished.
FUNCTION, AWAITED, AFTER = 0, 1, 2


class LockedVar:
    """A variable that ops read and write."""

    __slots__ = ("readers", "writer")

    def __init__(self) -> None:
        self.writer: list | None = None
        self.readers: list[list] = []


class LockedEngine:
    """`push`, `waitall` and `close`, from any thread; `waitall` raises the first failure."""

    push: Callable[..., list]
    waitall: Callable[[], None]

    def __init__(self, workers: int) -> None:
        lock = threading.Lock()
        sleepers = threading.Condition(lock)
        ready: deque[list] = deque()
        take = ready.popleft
        unfinished = asleep = 0
        is_waking = is_closing = False
        failures: list[BaseException] = []

        def push(
            function: Callable[[], object],
            *,
            reads: Sequence[LockedVar] = (),
            writes: Sequence[LockedVar] = (),
        ) -> list:
            nonlocal unfinished, is_waking
            op: list = [function, 0, []]
            awaited = 0
            with lock:
                for variable in reads:
                    before = variable.writer
                    if before is not None and before[AFTER] is not None:
                        before[AFTER].append(op)
                        awaited += 1
                    variable.readers.append(op)
                for variable in writes:
                    if variable.readers:
                        # The readers follow the last writer already.
                        for before in variable.readers:
                            if before[AFTER] is not None and before is not op:
                                before[AFTER].append(op)
                                awaited += 1
                        variable.readers = []
                    else:
                        before = variable.writer
                        if before is not None and before[AFTER] is not None:
                            before[AFTER].append(op)
                            awaited += 1
                    variable.writer = op
                unfinished += 1
                if awaited:
                    op[AWAITED] = awaited
                else:
                    ready.append(op)
                    if asleep and not is_waking:
                        is_waking = True
                        sleepers.notify()
            return op

        def serve(*, is_worker: bool) -> None:
            """Run ops: a worker until the engine closes, a waiter until none is left."""
            nonlocal unfinished, asleep, is_waking
            op: list | None = None
            while True:
                with lock:
                    if op is not None:
                        for later in op[AFTER]:
                            later[AWAITED] -= 1
                            if not later[AWAITED]:
                                ready.append(later)
                        op[AFTER] = None
                        unfinished -= 1
                        if not unfinished and asleep:
                            sleepers.notify_all()
                    while not ready:
                        if is_closing if is_worker else not unfinished:
                            return
                        asleep += 1
                        sleepers.wait()
                        asleep -= 1
                        is_waking = False
                    op = take()
                    if ready and asleep and not is_waking:
                        is_waking = True
                        sleepers.notify()
                try:
                    op[FUNCTION]()
                except BaseException as error:
                    failures.append(error)

        def waitall() -> None:
            serve(is_worker=False)
            if failures:
                raise failures[0]

        def close() -> None:
            nonlocal is_closing
            with lock:
                is_closing = True
                sleepers.notify_all()
            for thread in threads:
                thread.join()

        self.push, self.waitall, self._close = push, waitall, close
        threads = [
            threading.Thread(target=serve, kwargs={"is_worker": True}, daemon=True)
            for _ in range(workers)
        ]
        for thread in threads:
            thread.start()

    def close(self) -> None:
        """Let the workers end, once all ops have ended."""
        self.waitall()
        self._close()
