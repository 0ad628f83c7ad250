"""Floor 4. The loop of a worker process: take a chunk, do it, put its arrays in shared memory.

It imports nothing of the device. The process ends when the other end of its pipe is closed, and
when its parent process is gone, however the parent ended.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from multiprocessing import parent_process
from multiprocessing.shared_memory import SharedMemory
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.data.chunks import Outcome, done
from cudasync.data.packing import packed, places, unpacked
from cudasync.errors import UnpicklableCause

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Request(NamedTuple):
    """A chunk to do; its items follow it, packed."""

    block: str | None  # the target of arrays
    gone: list[str]  # blocks that are not used any more
    is_numbers: bool  # the items are numbers of samples
    buffers: int  # the number of buffers behind the items
    skips: bool


class Answer(NamedTuple):
    """The result of a chunk; its items follow it, packed. A number may come before it: the room
    that its arrays need. The reply to the number is the name of another block."""

    outcome: Outcome
    sizes: list[int]
    error: bytes | None
    told: str


def main(pipe: Connection, fn: bytes, view: bytes | None) -> None:
    """Serve requests until there are no more."""
    # Ctrl-C goes to all processes of a terminal, but only the parent ends this one. The signal was
    # blocked until here, so that it interrupts no import.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    served = _Served(pipe, fn, view)
    try:
        while True:
            served.one()
    except (EOFError, ConnectionError):
        return


def _end_with_parent() -> None:
    """End with the parent process, even in the middle of an endless sample."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Served:
    """This end of the pipe, and the state between requests."""

    def __init__(self, pipe: Connection, fn: bytes, view: bytes | None) -> None:
        self._pipe, self._fn, self._view = pipe, fn, view
        self._loaded: tuple[Any, Any] | None = None
        # By name. The parent keeps the name while it uses the block.
        self._blocks: dict[str, SharedMemory] = {}

    def one(self) -> None:
        """Take a request and answer it."""
        request = Request(*self._pipe.recv())
        for name in request.gone:
            self._blocks.pop(name).close()
        head = self._pipe.recv_bytes()
        buffers = [bytearray(self._pipe.recv_bytes()) for _ in range(request.buffers)]
        try:
            if self._loaded is None:
                view = None if self._view is None else pickle.loads(self._view)
                self._loaded = pickle.loads(self._fn), view
            fn, view = self._loaded
            items = unpacked(head, buffers)
        except Exception as error:
            outcome = Outcome(error=error)
        else:
            view = view if request.is_numbers else None
            outcome = done(fn, items, 0, view, skips=request.skips, is_stopped=lambda: False)
        self._answer(outcome, request.block)

    def _answer(self, outcome: Outcome, name: str | None) -> None:
        head, arrays = _packed(outcome)
        sizes = [each.nbytes for each in arrays]
        starts, end = places(sizes)
        block = None if name is None else self._attached(name)
        if end and (block is None or end > block.size):
            self._pipe.send(end)
            block = self._attached(self._pipe.recv())
        memory: Any = None if block is None else block.buf
        for start, size, array in zip(starts, sizes, arrays, strict=True):
            memory[start : start + size] = array
        error, told = (None, "") if outcome.error is None else _portable(outcome.error)
        outcome.error, outcome.found = None, []
        self._pipe.send(tuple(Answer(outcome, sizes, error, told)))
        self._pipe.send_bytes(head)

    def _attached(self, name: str) -> SharedMemory:
        if name not in self._blocks:
            # Before Python 3.13 attaching registers the block again with the resource tracker.
            known: Any = {"track": False} if sys.version_info >= (3, 13) else {}
            self._blocks[name] = SharedMemory(name, **known)
        return self._blocks[name]


def _packed(outcome: Outcome) -> tuple[bytes, list[memoryview]]:
    """The items up to the first that cannot be sent, which becomes the chunk's failure."""
    try:
        return packed(outcome.found)
    except Exception:
        for at, each in enumerate(outcome.found):
            try:
                packed(each)
            except Exception as error:
                outcome.error, outcome.failed_at, outcome.was_fetched = error, at, True
                del outcome.found[at:]
                break
        return packed(outcome.found)


def _portable(error: BaseException) -> tuple[bytes, str]:
    """An exception that another process can read, and its traceback as text."""
    told = "".join(traceback.format_exception(error))
    try:
        sent = pickle.dumps(error)
        pickle.loads(sent)
    except Exception:
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        sent = pickle.dumps(UnpicklableCause(kind, str(error)))
    return sent, told
