"""Floor 3. An engine while a program is recorded: its verbs lead to the recorder.

A recorder is the current engine of the code that records. That code may also have the engine
outside by a name, and call its verbs. So all engines get the class `RecordedEngine` while any
program is recorded, and their own class afterwards. A push outside of recordings pays nothing.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from cudasync.engine import Engine
from cudasync.engine.current import maybe_engine
from cudasync.engine.general_push import is_ours
from cudasync.engine.lifecycle import fork_and_exit
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from cudasync.graph.recorder import Recorder

_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
_lock = Lock()


def stand_in(recorder: Recorder) -> None:
    """From now on the verbs of engines lead to `recorder`, in the code that it is current for."""
    with _lock:
        _recorders.add(recorder)
        for each in list(fork_and_exit.engines):
            each.__class__ = RecordedEngine


def stand_aside(recorder: Recorder) -> None:
    """Undo `stand_in`."""
    with _lock:
        _recorders.discard(recorder)
        if not _recorders:
            for each in list(fork_and_exit.engines):
                each.__class__ = Engine


def _opened(engine: Engine) -> None:
    if _recorders:
        with _lock:
            if _recorders:
                engine.__class__ = RecordedEngine


def _start_anew() -> None:
    """In a forked child: another thread of the parent may hold the lock."""
    global _lock
    _lock = Lock()


fork_and_exit.openings.append(_opened)
os.register_at_fork(after_in_child=_start_anew)


class RecordedEngine(Engine):
    """An engine whose verbs are recorded, where a program is recorded that began with this engine.

    There, another engine's verbs raise RecordingError. Elsewhere they are the engine's own.
    """

    # A plain push reads the push site from its caller's frame; here that would be this file. So
    # pushes outside of recordings take the long way, which finds the frame outside of the package.

    def push(
        self,
        fn: Callable[..., Any],
        reads: Any = (),
        writes: Any = (),
        name: str | None = None,
        priority: int = 0,
        device: Any = None,
        pool: str | None = None,
    ) -> Any:
        recorder = _recorder_in_place_of(self, sys._getframe(1), "a push")
        push: Any = self._push_any if recorder is None else recorder.push
        return push(fn, reads, writes, name, priority, device, pool)

    def push_many(
        self,
        steps: Iterable[Any],
        name: str | None = None,
        priority: int = 0,
        pool: str | None = None,
    ) -> Any:
        recorder = _recorder_in_place_of(self, sys._getframe(1), "a batch")
        if recorder is not None:
            return recorder.push_many(steps, name, priority, pool)
        return Engine.push_many(self, steps, name, priority, pool)

    def waitall(self, timeout: float | None = None) -> None:
        self._refuse_in_recording("waitall()")
        super().waitall(timeout)

    def statistics(self) -> Any:
        self._refuse_in_recording("statistics()")
        return super().statistics()

    def replay_report(self) -> Any:
        self._refuse_in_recording("replay_report()")
        return super().replay_report()

    def trace(self) -> Any:
        self._refuse_in_recording("trace()")
        return super().trace()

    def clear_errors(self) -> None:
        self._refuse_in_recording("clear_errors()")
        super().clear_errors()

    def close(self) -> None:
        self._refuse_in_recording("close()")
        super().close()

    def __enter__(self) -> Engine:
        self._refuse_in_recording(
            "`with engine:`", "enter the engine around `with cs.graph()`, which then records it"
        )
        return super().__enter__()

    def _refuse_in_recording(self, what: str, *why: str) -> None:
        recorder = _recorder_of(sys._getframe(2))
        if recorder is not None:
            recorder.refuse(what, *why)


def _recorder_of(caller: FrameType) -> Recorder | None:
    """The recorder of a program's code; None outside of recordings, and for code of the library:
    what it pushes onto an engine by name is no part of the program, such as the end of memory, or
    the next items of an input pipeline."""
    if is_ours(caller.f_code):
        return None
    found: Any = maybe_engine()
    if found is None or found.mode != "recording" or found.is_closed:
        return None
    recorder: Recorder = found
    return recorder


def _recorder_in_place_of(engine: Engine, caller: FrameType, what: str) -> Recorder | None:
    """The recorder that stands in for `engine` in the calling code; None if none does. Raises
    RecordingError if a program is recorded that began with another engine."""
    recorder = _recorder_of(caller)
    if recorder is not None and recorder.outside is not engine:
        refuse_another(recorder, what)
    return recorder


def refuse_another(recorder: Recorder, what: str) -> NoReturn:
    """Raise RecordingError for a use of another engine than the recorder stands in for."""
    recorder.refuse(
        f"{what} of another engine",
        "the recording stands in for the engine that was current when it began: enter the other "
        "engine around `with cs.graph()`, or use it before or after",
    )
