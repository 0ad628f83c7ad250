"""The tower. While a program is checked: Python that touches memory which an unfinished op writes.

NumPy does not ask the engine before it accesses memory. So `cs.copy(array, x)` and a read of
`array` without a wait is a race, and gives old contents from time to time. From the push of such an
op to its start, the array's memory is guarded (`page_guard`). A thread of the engine delays the
start a little, unless the pushing thread waits: a read right after the push comes before it.

What an op does itself, and what the library does, is no race. Nor is an access after the op is
over, whoever told the program so: there are no false findings. There are findings left out: arrays
that were made before the check, or on another thread, or in memory that is not NumPy's; views with
gaps; what graphs and batches write; a touch long after the push; and what system calls touch, which
fails with EFAULT instead.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudasync.driver.extensions import sanitizer
from cudasync.engine import current, general_push, waiters
from cudasync.engine.hazards.interval_map import Gapped
from cudasync.engine.hazards.variable import as_tuple, resolve_one
from cudasync.testing.page_guard import Guards, pages_of_their_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from cudasync.engine import Engine, Op
    from cudasync.engine.op import OpKind
    from cudasync.testing.page_guard import Guard

# An op starts so late, at most, if its pusher does not wait.
_DELAY_S: Final = 0.05
_NUMPYS = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
# A thread in this code waits for ops.
_WAITS = {waiters.wait_for.__code__, general_push._hold_back.__code__}


class _Write:
    """An op that writes guarded memory, and the sites of Python that touched it before."""

    def __init__(self, name: str, site: str, pusher: int) -> None:
        self.name, self.site, self.pusher = name, site, pusher
        self.guards: list[Guard] = []
        self.op: Op | None = None
        # No set: it is changed in the middle of any code.
        self.touched: list[tuple[str, int]] = []

    @property
    def is_over(self) -> bool:
        return self.op is not None and self.op.finished


class HostRaces:
    """Stands in for `general_push.push`, which makes all ops that access bytes of the host."""

    def __init__(self, push: Callable[..., Op]) -> None:
        self._push = push
        self._guards = Guards(self._touched)
        self._writes: list[_Write] = []
        self._told = 0

    def push(
        self,
        engine: Engine,
        fn: Callable[..., Any],
        kind: OpKind,
        reads: Any,
        writes: Any,
        name: str,
        *positional: Any,
        **named: Any,
    ) -> Op:
        """Push the op; guard what it writes of the host until it begins."""
        guarded = [each for each in as_tuple(writes) if self._guards.can_guard(each)]
        # Other data may lie in the gaps of a view.
        guarded = [each for each in guarded if resolve_one(each, "writes").__class__ is not Gapped]
        # A batch, or a part of a graph, makes its function of the op.
        is_simple = engine._serial is None and named.get("bind") is None
        if not guarded or not is_simple:
            return self._push(engine, fn, kind, reads, writes, name, *positional, **named)
        self.tell()
        frame = named.get("site") or general_push.push_site()
        site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        write = _Write(name, site, threading.get_ident())
        self._writes.append(write)
        begin = partial(self._begin, write, fn)
        try:
            write.guards += [self._guards.close(each) for each in guarded]
            op = self._push(engine, begin, kind, reads, writes, name, *positional, **named)
        except BaseException:
            self._open(write)
            raise
        write.op = op
        # A poisoned op never begins.
        op.add_done_callback(partial(self._open, write))
        return op

    def tell(self) -> None:
        """Report what was found since the last call."""
        for write in list(self._writes):
            while write.touched:
                site, offset = write.touched.pop()
                _report(write, site, offset)
            if write.is_over and not write.touched:
                self._writes.remove(write)

    def end(self) -> None:
        """Guard nothing any more, and report what is left."""
        self._guards.end()
        self.tell()

    def _begin(self, write: _Write, fn: Callable[..., Any], *arguments: Any) -> Any:
        if current.is_ours():
            until = time.monotonic() + _DELAY_S
            while time.monotonic() < until and not _waits(write.pusher):
                time.sleep(1e-3)
        self._open(write)
        return fn(*arguments)

    def _open(self, write: _Write) -> None:
        for guard in write.guards:
            self._guards.open(guard)

    def _touched(self, guard: Guard, frame: FrameType | None) -> None:
        if frame is None or current.is_ours() or current.inside():
            return
        if general_push.is_ours(frame.f_code):
            return
        for write in self._writes:
            if guard in write.guards and not write.is_over:
                write.touched.append((_site(frame), guard.begin))


def _waits(thread: int) -> bool:
    """True if this thread waits for ops, or is over."""
    frame = sys._current_frames().get(thread)
    is_over = frame is None
    while frame is not None and frame.f_code not in _WAITS:
        frame = frame.f_back
    return is_over or frame is not None


def _site(frame: FrameType) -> str:
    """The line that touches the memory, or that called NumPy to do so."""
    while frame.f_code.co_filename.startswith(_NUMPYS) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _report(write: _Write, site: str, address: int) -> None:
    sanitizer.add(
        {
            "kind": "race",
            "text": "Python touches NumPy memory before the op that writes it is over",
            "accesses": [
                {"what": "Python", "verb": "access", "site": site},
                {"what": f"op {write.name!r}", "verb": "write", "site": write.site},
            ],
            "memory": f"in the array at {address:#x}",
            "missing": "wait for the op first, as in cs.copy(array, x).wait()",
        }
    )


@contextmanager
def watched() -> Iterator[HostRaces]:
    """Watch all engines; the sanitizer must have begun, and gets the findings."""
    races = HostRaces(general_push.push)
    general_push.push = races.push
    try:
        with pages_of_their_own():
            yield races
    finally:
        general_push.push = races._push
        races.end()
