"""Floor 2. Host workers: threads that run host ops, larger priority first, then push order.

A worker that blocks inside an op (it waits for another op) is stood in for by one more thread
until it goes on, so a pool full of waiters still runs what they wait for. Workers start when there
is work for them and sleep when there is none.
"""

from __future__ import annotations

import heapq
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.engine.op import Op


# Which pool this thread works for.
_here = threading.local()


def current_pool() -> WorkerPool | None:
    """The pool that the calling thread works for, None if it is nobody's worker."""
    return getattr(_here, "pool", None)


class WorkerPool:
    """`size` threads that run the ops put here with `run(op, worker name)`."""

    def __init__(self, name: str, size: int, run: Callable[[Op, str], None]) -> None:
        self.name = name
        self.size = size
        self._run = run
        self._changed = threading.Condition(threading.Lock())
        self._queue: list[tuple[int, int, Op]] = []
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._blocked = 0
        self._is_closed = False
        self._free_names: list[int] = []

    def put(self, op: Op) -> None:
        """Queue an op that is ready. Never blocks."""
        with self._changed:
            heapq.heappush(self._queue, (-op.priority, op.number, op))
            if self._idle:
                # Counted down here, not by the sleeper: a second put must not count on the same
                # thread while it is still waking up.
                self._idle -= 1
                self._changed.notify()
            else:
                self._grow()

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """The calling worker is about to block: let another thread take its place meanwhile."""
        with self._changed:
            self._blocked += 1
            if self._queue and not self._idle:
                self._grow()
        try:
            yield
        finally:
            with self._changed:
                self._blocked -= 1

    def close(self) -> None:
        """Let the workers end once the queue is empty; wait for those that are not the caller."""
        with self._changed:
            self._is_closed = True
            self._idle = 0
            self._changed.notify_all()
            threads = [t for t in self._threads if t is not threading.current_thread()]
        for thread in threads:
            thread.join(timeout=5.0)

    def _grow(self) -> None:
        """Start a thread if fewer than `size` are able to work. The caller holds the lock."""
        if len(self._threads) - self._blocked >= self.size:
            return
        index = heapq.heappop(self._free_names) if self._free_names else len(self._threads)
        thread = threading.Thread(
            target=self._main,
            args=(index,),
            name=f"cudasync worker {self.name} {index}",
            daemon=True,
        )
        # Counted once it has started: one that could not be is not to be relied on.
        thread.start()
        self._threads.add(thread)

    def _main(self, index: int) -> None:
        _here.pool = self
        name = f"worker {self.name} {index}"
        while (op := self._next(index)) is not None:
            self._run(op, name)
            # Hold nothing while asleep: an op's arrays must be able to go.
            del op

    def _next(self, index: int) -> Op | None:
        """The next op to run; None when this thread is to end."""
        with self._changed:
            while True:
                surplus = len(self._threads) - self._blocked > self.size
                if surplus or (self._is_closed and not self._queue):
                    self._threads.discard(threading.current_thread())
                    heapq.heappush(self._free_names, index)
                    if self._queue and self._idle:
                        # It may have been woken for an op: pass the call on.
                        self._idle -= 1
                        self._changed.notify()
                    return None
                if self._queue:
                    return heapq.heappop(self._queue)[2]
                self._idle += 1
                self._changed.wait()
