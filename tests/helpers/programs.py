"""Random programs over arrays, views, host memory and tokens, as Hypothesis strategies.

A program is a list of steps in push order. Every step says what it reads and writes, so that a
trace can be judged without knowing how it came about. Steps are made so that each alone is
deterministic: within one kernel or copy, source and target are the same view or do not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import strategies as st

LENGTH = 24


@dataclass(frozen=True)
class View:
    """Elements [start, stop) of array `index` in "device" or "host" memory."""

    space: str
    index: int
    start: int
    stop: int

    def overlaps(self, other: View | Token) -> bool:
        return (
            isinstance(other, View)
            and (self.space, self.index) == (other.space, other.index)
            and self.start < other.stop
            and other.start < self.stop
        )


@dataclass(frozen=True)
class Token:
    index: int

    def overlaps(self, other: View | Token) -> bool:
        return self == other


@dataclass(frozen=True)
class Mix:
    """target = 31 * target + factor * source + position, by a kernel or a host op."""

    target: View
    source: View
    factor: int
    priority: int = 0

    @property
    def reads(self):
        return (self.target, self.source)

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class Set:
    """target = value + position: overwrites, so it heals what is poisoned."""

    target: View
    value: int

    reads = ()

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class Copy:
    """target = source, between any two memories."""

    target: View
    source: View

    @property
    def reads(self):
        return (self.source,)

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class Clear:
    """Zero a device view by a device op that enqueues a memset itself."""

    target: View

    reads = ()

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class Note:
    """A host op that writes its number into a token's log, or reads the log as its result."""

    token: Token
    is_write: bool

    @property
    def reads(self):
        return (self.token,)

    @property
    def writes(self):
        return (self.token,) if self.is_write else ()


@dataclass(frozen=True)
class Fail:
    """An op that raises before it has written anything."""

    target: View
    on_device: bool

    reads = ()

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class Read:
    """The host takes a device view's value now: the only step that waits."""

    source: View

    @property
    def reads(self):
        return (self.source,)

    writes = ()


Step: TypeAlias = Mix | Set | Copy | Clear | Note | Fail | Read


@dataclass(frozen=True)
class Program:
    device_arrays: int
    host_arrays: int
    tokens: int
    steps: tuple[Step, ...]


@st.composite
def views(draw, space: str, count: int) -> View:
    start = draw(st.integers(0, LENGTH - 1))
    return View(space, draw(st.integers(0, count - 1)), start, draw(st.integers(start + 1, LENGTH)))


def _partner(target: View, wanted: View, limit: int) -> View:
    """`wanted` made as long as `target`, and equal to it or apart from it."""
    length = min(target.stop - target.start, limit)
    start = min(wanted.start, LENGTH - length)
    view = View(wanted.space, wanted.index, start, start + length)
    return target if view.overlaps(target) else view


@st.composite
def steps(draw, device_arrays: int, host_arrays: int, tokens: int, with_failures: bool) -> Step:
    device = views("device", device_arrays)
    host = views("host", host_arrays)
    anywhere = st.one_of(device, host)
    kinds = ["mix", "mix", "host mix", "set", "copy", "copy", "clear", "note", "read"]
    match draw(st.sampled_from(kinds + (["fail"] if with_failures else []))):
        case "mix":
            target = draw(device)
            source = _partner(target, draw(device), LENGTH)
            return Mix(target, source, draw(st.integers(1, 9)), draw(st.sampled_from([0, 0, 1])))
        case "host mix":
            target = draw(host)
            return Mix(target, _partner(target, draw(host), LENGTH), draw(st.integers(1, 9)))
        case "set":
            return Set(draw(anywhere), draw(st.integers(0, 99)))
        case "copy":
            target = draw(anywhere)
            source = _partner(target, draw(anywhere), LENGTH)
            return Set(target, 7) if source == target else Copy(target, source)
        case "clear":
            return Clear(draw(device))
        case "note":
            return Note(Token(draw(st.integers(0, tokens - 1))), draw(st.booleans()))
        case "read":
            return Read(draw(device))
        case "fail":
            if draw(st.booleans()):
                return Fail(draw(device), on_device=True)
            return Fail(draw(anywhere), on_device=False)
    raise AssertionError("no such step")


@st.composite
def programs(draw, max_steps: int = 16, with_failures: bool = False) -> Program:
    """A program of up to `max_steps` steps over a few arrays, so that hazards are frequent."""
    device_arrays = draw(st.integers(1, 3))
    host_arrays = draw(st.integers(1, 2))
    tokens = draw(st.integers(1, 2))
    step = steps(device_arrays, host_arrays, tokens, with_failures)
    body = draw(st.lists(step, min_size=1, max_size=max_steps))
    return Program(device_arrays, host_arrays, tokens, tuple(body))
