"""Threads of a test: joined within the test's patience, with their errors and stacks reported.

Nothing here waits without a deadline, so a test that would hang fails instead.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from helpers.repository.checkout import PACKAGE

import cudasync as cs
from cudasync.engine.host.watchdog import WATCHDOG

PATIENCE_S = 20.0


class Crew:
    """`with Crew() as crew: crew.start(fn)` runs `fn` beside the test; leaving joins them all."""

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, fn: Callable[..., Any], *args: Any) -> threading.Thread:
        def main() -> None:
            try:
                fn(*args)
            except BaseException as error:
                self._errors.append(error)

        # A daemon: a thread that hangs fails its test, and does not keep the run from ending.
        thread = threading.Thread(target=main, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def join(self) -> None:
        """Wait for all threads; raise the first error, or report where they hang."""
        for thread in self._threads:
            thread.join(self._patience_s)
        stuck = [thread for thread in self._threads if thread.is_alive()]
        if self._errors:
            raise self._errors[0]
        assert not stuck, f"{len(stuck)} threads hang:\n{stacks()}"

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.join()


def together(*bodies: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    """Call each body on its own thread, all starting at once; raise the first error."""
    start = threading.Barrier(len(bodies))

    def run(body: Callable[[], Any]) -> None:
        start.wait(patience_s)
        body()

    with Crew(patience_s=patience_s) as crew:
        for body in bodies:
            crew.start(run, body)


def comes_true(condition: Callable[[], bool]) -> bool:
    """Wait for a change in other threads that sends no signal; False if it takes too long."""
    deadline, never = time.monotonic() + PATIENCE_S, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        never.wait(0.001)
    return True


def stacks() -> str:
    """The stacks of all threads of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"--- {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


def engine_threads() -> set[int]:
    """The threads that engines have started: the workers and watchers of every engine.

    `threading` does not list them, since the engine starts them below that module.
    """
    found = set()
    for ident, frame in sys._current_frames().items():
        first = frame
        while first.f_back is not None:
            first = first.f_back
        # The watchdog belongs to the process.
        if (
            first.f_code.co_filename.startswith(f"{PACKAGE}/engine/")
            and first.f_code.co_qualname != "Watchdog._main"
        ):
            found.add(ident)
    return found


def lasting_engine_threads() -> set[int]:
    """`engine_threads`, once the ending threads of earlier tests have ended.

    A new thread may get the number of an ended thread.
    """
    gc.collect()
    never = threading.Event()
    found, same = engine_threads(), 0
    while same < 20:
        never.wait(0.002)
        again = engine_threads()
        found, same = again, same + 1 if again == found else 0
    return found


def engine_threads_end(but: set[int]) -> bool:
    """True once all engine threads except these have ended; False if that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    never = threading.Event()
    while engine_threads() - but:
        if time.monotonic() > deadline:
            return False
        # There is no signal for a thread's end; the thread only disappears.
        never.wait(0.001)
    return True


def close(engine: cs.Engine) -> None:
    """Close `engine`; if that takes too long, an assertion fails instead of a hang."""
    with Crew() as crew:
        crew.start(engine.close)


@contextmanager
def engine_of(**options: Any) -> Iterator[cs.Engine]:
    """A current engine that is closed within the test's patience. Failed ops do not raise here."""
    engine = cs.Engine(**options)
    with cs.use(engine):
        try:
            yield engine
        finally:
            close(engine)


@contextmanager
def hasty(interval_s: float = 1e-5) -> Iterator[None]:
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def without_watchdog() -> Iterator[None]:
    """Make the watchdog ignore all engines that are created inside the block.

    It then repairs no lost wake-up, so the engine must go on without it.
    """
    WATCHDOG.watch = lambda pool: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        del WATCHDOG.watch


def held_by(gate: threading.Event, begun: threading.Event | None = None) -> Callable[[], None]:
    """A host op that holds its worker until the gate opens, and sets `begun` when it starts."""

    def hold() -> None:
        if begun is not None:
            begun.set()
        assert gate.wait(PATIENCE_S), "nobody opened the gate"

    return hold


@contextmanager
def quick_switches() -> Iterator[None]:
    """Let threads switch far more often than by default."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(2e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
