"""Floor 4, guards. A trace under watch, and the traces of a function, each with what it read.

A trace calls the user's function once, and its result is used again and again. So it must be made
anew once anything that it read is another, and it must change nothing that outlives it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import gc
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cudasync.array.guards.code_reads import is_library
from cudasync.errors import RecordingError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence
    from types import CodeType, FrameType, TracebackType

    from cudasync.array.guards.outside import Outside

T = TypeVar("T")
# Of one signature, the number of traces that are kept ready.
MOST_TRACES = 8
_SIGNALS = tuple(map(int, _signal.valid_signals()))
# The modules that call functions of the user's.
_CALLERS = {
    f"cudasync.array.{each}" for each in ("fused.function", "traced.function", "traced.trace")
}
# The traces under way, of all threads: a call of a traced function asks whether it is empty.
WATCHES: list[Watch] = []


class Watch:
    """`with Watch(outside, name):` around the call of the user's function, in one thread.

    Each piece of code that begins inside is entered in `outside` before it runs. At the end,
    RecordingError if that code gave anything outside another value.
    """

    def __init__(self, outside: Outside, name: str, *, is_constant: bool = False) -> None:
        # True if an array that is made inside keeps its value for all calls.
        self._is_constant = is_constant
        self._outside = outside
        self._name = name
        self._thread = threading.get_ident()
        self._known: set[CodeType] = set()
        self._others: Any = None
        # The code that Python may call at any moment.
        self._between = {
            each.__code__
            for each in (*gc.callbacks, *map(_signal.getsignal, _SIGNALS))
            if hasattr(each, "__code__")
        }

    def __enter__(self) -> Watch:
        self._others = sys.getprofile()
        WATCHES.append(self)
        sys.setprofile(self._event)
        return self

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code not in self._known:
            is_library_code = is_library(frame.f_globals.get("__name__"))
            if is_library_code or self._is_entered(frame):
                self._known.add(frame.f_code)
                if not is_library_code:
                    self._outside.enter(frame.f_code, frame.f_globals)
        if callable(self._others):
            # Another watch around this one, or a profiler.
            self._others(frame, event, argument)

    def _is_entered(self, frame: FrameType) -> bool:
        """True for code that the traced function calls. False for what this package calls to do its
        work, and for code that Python calls in between: finalisers, the hooks of the garbage
        collector, and handlers of signals."""
        module: Any = None
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code in self._between or caller.f_code.co_name == "__del__":
                return False
            module = caller.f_globals.get("__name__")
            if isinstance(module, str) and module.startswith("cudasync."):
                return module in _CALLERS
            caller = caller.f_back
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.setprofile(None)
        WATCHES.remove(self)
        if callable(self._others):
            sys.setprofile(self._others)
        elif hasattr(self._others, "enable"):
            # A profiler in C, which had to pause.
            self._others.enable()
        if error is not None:
            return
        drawn = self._outside.drawn()
        if drawn:
            raise RecordingError(
                f"{self._name} draws from {drawn[0]} while it is traced, and later calls would "
                f"not: draw before the call, or from a cs.random.Generator"
            )
        assigned = self._outside.assigned()
        if assigned:
            name = assigned[0]
            line = self._outside.line_of(name)
            raise RecordingError(
                f"{self._name} assigns to {name}{f' ({line})' if line else ''} while it is traced, "
                f"and later calls would not: return the new value, and assign it after the call; "
                f"write to an array in place (x += y, x[...] = y)"
            )


def is_constant_here() -> bool:
    """True if this thread is inside of a trace in which a new array is a constant."""
    here = threading.get_ident()
    return any(each._is_constant and each._thread == here for each in list(WATCHES))


def note(outside: Outside) -> None:
    """Let the traces of this thread depend on all that `outside` depends on."""
    here = threading.get_ident()
    for each in WATCHES:
        if each._thread == here:
            for code, globals_ in outside.codes:
                each._outside.enter(code, globals_)


class _Trace(Generic[T]):
    """A trace, and what it read."""

    __slots__ = ("is_recent", "made", "outside")

    def __init__(self, outside: Outside, made: T) -> None:
        self.outside = outside
        self.made = made
        # True since its last use; the search for a signature to drop sets it back.
        self.is_recent = True


class Traces(Generic[T]):
    """The traces of a function, by signature. Any number of threads may use them at once."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        # The trace that was used last comes first.
        self._known: dict[Hashable, list[_Trace[T]]] = {}
        self._has_warned = False

    def __len__(self) -> int:
        return sum(map(len, list(self._known.values())))

    def find(self, key: Hashable, objects: Sequence[tuple[str, Any]]) -> T | None:
        """The trace of this signature that is right now. `objects` are those among the arguments,
        with their names."""
        found = self._known.get(key)
        if found is None:
            return None
        trace = found[0]
        if not trace.outside.is_current(objects):
            another = self._another(key, found, objects)
            if another is None:
                return None
            trace = another
        trace.is_recent = True
        if WATCHES:
            note(trace.outside)
        return trace.made

    def keep(self, key: Hashable, outside: Outside, made: T) -> list[str]:
        """Keep a new trace; returns what is outside, compared with the trace before it."""
        if key not in self._known:
            self._make_room()
        others = self._known.get(key, [])
        against = outside.against(others[0].outside) if others else []
        if len(others) >= MOST_TRACES and not self._has_warned:
            self._has_warned = True
            self._warn(outside, against)
        self._known[key] = [_Trace(outside, made), *others][:MOST_TRACES]
        return against

    def _another(
        self, key: Hashable, found: list[_Trace[T]], objects: Sequence[tuple[str, Any]]
    ) -> _Trace[T] | None:
        """The trace that is right, first from now on; None if there is none."""
        for each in found:
            if not each.outside.is_current(objects):
                # Other objects, but perhaps with the same content.
                now = each.outside.now(objects)
                if now.facts != each.outside.facts:
                    continue
                each.outside = now
            self._known[key] = [each, *[other for other in found if other is not each]]
            return each
        return None

    def _make_room(self) -> None:
        while len(self._known) >= self._most:
            for key, traces in list(self._known.items()):
                if not traces[0].is_recent:
                    self._known.pop(key, None)
                    break
                traces[0].is_recent = False

    def _warn(self, outside: Outside, against: Iterable[str]) -> None:
        said = next(iter(against), "something from outside changes")
        name = said.partition(" (from outside)")[0]
        line = outside.line_of(name)
        warnings.warn(
            f"{self._name} was traced more than {MOST_TRACES} times for one signature, because "
            f"{said}{f', which {line} reads' if line else ''}: keep such a value in an array, and "
            f"write to that in place",
            RuntimeWarning,
            stacklevel=_depth(),
        )


def _depth() -> int:
    """The number of frames from `warn` to the user's call."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("cudasync."):
        depth, frame = depth + 1, frame.f_back
    return depth
