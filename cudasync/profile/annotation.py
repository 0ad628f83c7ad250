"""The tower. `cs.annotate("name")`: parts of a program that profiles and NVIDIA's tools show.

Listeners receive annotations. Without a listener, a block or a decorated function only tests one
empty list.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.engine import current
from cudasync.engine.op import site_of
from cudasync.profile.perfetto import lanes
from cudasync.profile.record import ANNOTATION, NodeTime, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, TracebackType
    from typing import ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")


class Span(NamedTuple):
    """A block that was left: times by `time.perf_counter`, and the line where it was entered."""

    name: str
    thread: str
    begin: float
    end: float
    code: CodeType
    at: int

    @property
    def site(self) -> str:
        return site_of(self.code, self.at)


class Heard:
    """A listener that keeps all spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def begun(self, name: str) -> None:
        """Do nothing: a block is kept once it is left."""

    def ended(self, span: Span) -> None:
        self.spans.append(span)


class Listener(Protocol):
    """An object that is called at each annotation, on the annotation's thread."""

    def begun(self, name: str) -> None: ...

    def ended(self, span: Span) -> None: ...


LISTENERS: list[Listener] = []


class _Open(NamedTuple):
    thread: int
    begin: float
    code: CodeType
    at: int
    told: tuple[Listener, ...]


@unpicklable("annotate there")
class Annotation:
    """A name for a `with` block, or for a decorated function."""

    __slots__ = ("_open", "name")

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"an annotation is a string, not {name!r}: cs.annotate('name')")
        self.name = name
        # Blocks of this annotation that were entered and not left, on any thread.
        self._open: list[_Open] = []

    def __enter__(self) -> None:
        if LISTENERS:
            self._begin(sys._getframe(1))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._open:
            self._end()

    def __call__(self, fn: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """`fn`, annotated at each call.

        Raises TypeError for a generator or a coroutine function, whose call only makes an object.
        """
        if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
            raise TypeError(
                f"{fn.__qualname__} is a generator or coroutine, and a call only starts it: "
                f"annotate a block inside it"
            )

        @functools.wraps(fn)
        def annotated(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
            if not LISTENERS:
                return fn(*args, **options)
            with self:
                return fn(*args, **options)

        return annotated

    def _begin(self, frame: Any) -> None:
        told = tuple(LISTENERS)
        for each in told:
            each.begun(self.name)
        self._open.append(
            _Open(get_ident(), time.perf_counter(), frame.f_code, frame.f_lasti, told)
        )

    def _end(self) -> None:
        end, here = time.perf_counter(), get_ident()
        # The innermost block of this thread; None if no listener was there when it was entered.
        mine = next((each for each in reversed(self._open) if each.thread == here), None)
        if mine is None:
            return
        self._open.remove(mine)
        span = Span(self.name, _thread_name(here), mine.begin, end, mine.code, mine.at)
        for each in mine.told:
            each.ended(span)


def _thread_name(ident: int) -> str:
    worker = current.worker()
    if worker is not None:
        return worker.name
    # Not `current_thread`, which would register a thread that Python did not start.
    names = (each.name for each in threading.enumerate() if each.ident == ident)
    return next(names, f"thread {ident}")


def annotate(name: str) -> Annotation:
    """Name a block, `with cs.annotate("load"): ...`, or a function that it decorates.

    A profile shows the annotation in `p.annotations`, as text, in the trace, the picture and the
    page. With CUDASYNC_NVTX=1 NVIDIA's tools show it as a range of NVTX. Otherwise its cost is
    negligible. An annotation belongs to the thread that enters it, and does not affect ops: ops
    that are pushed inside may run later.

    Raises TypeError for anything but a string.
    """
    return Annotation(name)


def records(spans: Sequence[Span], wall: float) -> list[Record]:
    """Spans in the form of ops, so that all output formats show them.

    `wall` is the time when the profile began. Spans of one track do not overlap.
    """
    made = []
    for thread in dict.fromkeys(each.thread for each in spans):
        # Of two spans with the same start the longer one encloses the other.
        mine = [
            NodeTime(each.name, each.site, (each.begin - wall) * 1e6, (each.end - wall) * 1e6)
            for each in sorted(spans, key=lambda span: (span.begin, -span.end))
            if each.thread == thread
        ]
        for each, lane in zip(mine, lanes(mine), strict=True):
            record = Record(0, each.name, ANNOTATION, each.push_site, each.start_us)
            record.place = f"{thread}, annotations" + (f" {lane + 1}" if lane else "")
            record.issued_us = record.start_us = each.start_us
            record.found_us = record.end_us = each.end_us
            made.append(record)
    made.sort(key=lambda record: record.queued_us)
    for at, record in enumerate(made, 1):
        # No op has a negative number.
        record.number = -at
    return made
