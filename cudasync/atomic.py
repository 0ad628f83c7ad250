"""Floor 0. The only operations that threads may share data through without a lock.

The table names the guarantee behind each operation, in both builds of CPython. *C call*: no other
thread runs during the call, since CPython releases the GIL between bytecodes only. *Own lock*:
without a GIL the call holds the mutex of that one object (`Py_BEGIN_CRITICAL_SECTION`); an acquire
is a sequentially consistent compare-and-set, an unlock a release.

| operation | with a GIL | free-threaded, 3.14 |
|---|---|---|
| `list.append pop copy extend remove`, slice assignment | C call | own lock |
| `dict.setdefault pop clear`, `d[k] = v`, `list(d)`, `list(d.values())` | C call | own lock |
| `deque.append popleft`, `heappush`, `heappop` of integers | C call | own lock |
| `next(itertools.count)` | C call | compare-and-set in a loop |
| store to a slot of an object | one bytecode | own lock, the value by release |
| load from a slot, `list[i]`, `len`, truth of a list or dict | one bytecode | no lock: acquire |
| `lock.acquire release locked` | C call | compare-and-set |

So two threads that take the lock of the *same* object have an order, and the second thread sees
all earlier stores of the first. Three rules follow, and the engine uses no others:

- **One winner.** If several threads append to one list, one is first in it (`offer`, `claim`). If
  several threads pop one key or item, one gets it.
- **Two stores to one object.** Two threads each store to a slot of one object, then look at the
  slot that the other stored to: one of them sees the other's store.
- **A meeting.** Two threads store to different objects. Then each makes a step on one list (`meet`,
  or an append and a `copy`), then looks: one of them sees the other's store.

A look alone (`if things:`) takes no lock and orders nothing. One C call that allocates several
tuples, lists or dicts is *not* one step: before 3.12 the collector may run at each allocation, and
with it Python code and a thread switch. `list(d)` and `d.copy()` are one step over a dict of plain
keys; `list(d.items())` is not. `max(d)` is one step with a GIL only.

`tests/test_litmus.py` tests the rules with real threads, in the build that runs the test.
`tests/engine/models` explores schedules of code built on the rules, with planted bugs. A hot loop
writes the one C call inline and names the block here.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import TypeAlias

    Append: TypeAlias = Callable[[object], None]

T = TypeVar("T")


class Tickets:
    """Numbers 1, 2, 3, ...: each goes to exactly one caller, in the order of the calls."""

    __slots__ = ("count", "next")

    def __init__(self) -> None:
        # `next(tickets.count)` takes a number at half the cost of `tickets.next()`.
        self.count = count(1)
        self.next = self.count.__next__

    @property
    def taken(self) -> int:
        """How many numbers were handed out. Reading takes none."""
        # "count(7)" if 7 is next. From 3.12 on, where pickling is deprecated, only the repr tells
        # the next number without taking it.
        return int(repr(self.count)[len("count(") : -1]) - 1


class Inbox(Generic[T]):
    """A queue that any thread, a finaliser or a signal handler may put into.

    `put` never blocks and runs no Python code of the library or the item. So it is safe while the
    same thread is anywhere in the library, in particular inside a garbage collection. Items leave
    in the order of arrival; no two callers of `take` get the same item.
    """

    __slots__ = ("items", "put")

    def __init__(self) -> None:
        # Other code must only look at it.
        self.items: deque[T] = deque()
        self.put = self.items.append

    def __bool__(self) -> bool:
        return bool(self.items)

    def take(self) -> T | None:
        """Remove and return the oldest item; None when there is none. Never blocks."""
        try:
            return self.items.popleft()
        except IndexError:
            return None


class Once(Generic[T]):
    """A cell that is written once: the first `offer` wins, and every caller gets the winner.

    The compare-and-set is `dict.setdefault` with a string key, one C call.
    """

    __slots__ = ("_cell",)

    def __init__(self) -> None:
        self._cell: dict[str, T] = {}

    def offer(self, value: T) -> T:
        """Write `value` if the cell is empty; return the value of the cell."""
        return self._cell.setdefault("value", value)

    def get(self) -> T | None:
        """The value of the cell; None while it is empty."""
        return self._cell.get("value")


def meet(things: list[Any]) -> None:
    """A step on a list that changes nothing: two threads that both make one have an order.

    After its step, the second thread sees all stores that the first made before its own. So if two
    threads each store, make a step and look at the other's store, one of them sees the other.
    """
    things.extend(())


def offer(cell: list[T], value: T) -> T:
    """The first append to an empty list wins; return the winner.

    The same as `Once` at a third of its cost: the cell is a plain list that its owner makes.
    Losing offers stay behind the winner, where nobody looks.
    """
    cell.append(value)
    return cell[0]


class Roll(Generic[T]):
    """Entries that any thread may add, iterate over and remove without a lock.

    The key is a number, not the entry's subject: with a reused key, a thread that removes the old
    entry could remove the new one, whatever it checked before.
    """

    __slots__ = ("_entries", "_numbers")

    def __init__(self) -> None:
        self._entries: dict[int, T] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: T) -> int:
        """Add an entry, which later readers see; return its number."""
        number = next(self._numbers)
        self._entries[number] = entry
        return number

    def remove(self, number: int) -> None:
        """Remove the entry with a number, if it is there."""
        self._entries.pop(number, None)

    def all(self) -> list[T]:
        """A copy of the present entries, the oldest first."""
        return list(self._entries.values())

    def strike(self, is_over: Callable[[T], bool]) -> None:
        """Remove the entries that are over. Several threads may do so at once."""
        for number in list(self._entries):
            entry = self._entries.get(number)
            if entry is not None and is_over(entry):
                self._entries.pop(number, None)


class Gate:
    """The set of things that an owner still waits for; a repeated arrival is harmless.

    A counter would need exactly one decrement for each thing. From a set, a thread may remove an
    element that another thread has removed already. The gate uses a given dict itself, so nobody
    else may use that dict.
    """

    __slots__ = ("_awaited",)

    def __init__(self, awaited: Iterable[Hashable]) -> None:
        self._awaited = awaited if awaited.__class__ is dict else dict.fromkeys(awaited)

    def arrive(self, what: Hashable) -> bool:
        """Stop waiting for `what`; True if nothing is left.

        Several callers may get True, at the latest the caller after the last arrival.
        """
        self._awaited.pop(what, None)
        return not self._awaited


class Bell:
    """Threads sleep here until a ring: a ring wakes one present sleeper, or else the next one.

    Rings do not add up: a woken thread looks for all work. `ring` never blocks, also from a
    finaliser or a signal handler; `is_silent` tells that no ring waits for a sleeper.

    A raw lock serves as a binary semaphore: it is held while silent, and protects nothing. (The
    `get(timeout)` of a `SimpleQueue` fails with two sleepers, up to Python 3.13 at least: a sleeper
    that is woken for nothing may sleep on without a timeout.)
    """

    __slots__ = ("_lock", "is_silent")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()
        self.is_silent = self._lock.locked

    def ring(self) -> None:
        # RuntimeError: the bell is ringing already.
        with suppress(RuntimeError):
            self._lock.release()

    def sleep(self, timeout: float | None = None) -> bool:
        """Sleep until a ring; False if `timeout` seconds passed without one."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))


class _Mark:
    """An entry of a log that belongs to no user. The engine reads `_pool` of every entry."""

    __slots__ = ("_name",)
    _pool = None

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


# SEAL stands behind the last valid entry of a segment; DONE replaces a finished entry.
SEAL: Final = _Mark("SEAL")
DONE: Final = _Mark("DONE")


# Functions that wrap the append of each new segment: see `Log.tell`.
_TOLD: list[Callable[[Append], Append]] = []


def _telling(append: Append) -> Append:
    # The functions change only with a new segment, so one look here suffices. The first function is
    # the outermost, so that it gets an entry first.
    for wrap in reversed(_TOLD.copy()):
        append = wrap(append)
    return append


class Segment:
    """A part of a log: entries behind the SEAL do not count."""

    __slots__ = (
        "__weakref__",
        "append",
        "base",
        "end",
        "entries",
        "following",
        "is_sealed",
        "passed",
        "sealers",
    )

    def __init__(self, base: int) -> None:
        # The number of the first entry in the whole log.
        self.base = base
        # A thread that has finished with an entry puts DONE in its place.
        self.entries: list[object] = []
        # The functions of `_TOLD` get an entry before other threads can see it.
        self.append = _telling(self.entries.append)
        # Set before the SEAL is appended: an appender that sees it unset was in time.
        self.is_sealed = False
        # One item per thread that is about to append a SEAL.
        self.sealers: list[None] = []
        # The index of the first SEAL, once known.
        self.end: int | None = None
        # A cell for the next segment: the first thread at the end wins it.
        self.following: list[Segment] = []
        # A hint for combiners: see `engine.log.passing`.
        self.passed = 0

    def seal(self) -> int:
        """Close the segment for entries; return the index of the SEAL. Any thread may do it."""
        self.is_sealed = True
        end = self.end
        if end is None:
            self.sealers.append(None)
            start = len(self.entries)
            self.entries.append(SEAL)
            # A thread that is alone until here is the first: others append their SEAL later. Else
            # the search covers all entries.
            is_first = len(self.sealers) == 1
            end = self.end = self.entries.index(SEAL, start if is_first else 0)
        return end

    def next(self) -> Segment:
        """The segment after this one, which is sealed."""
        end = self.seal()
        return (
            self.following[0] if self.following else offer(self.following, Segment(self.base + end))
        )


class Log:
    """Entries in one total order for all threads: the order of `list.append` on the last segment.

    An array queue with segments (Morrison and Afek 2013; Correia and Ramalhete 2016), but without
    removal: readers use positions, so that two of them may read the same entry.
    """

    __slots__ = ("tail",)

    def __init__(self) -> None:
        # A hint: the last segment or an earlier one. A thread that finds it sealed goes on from it.
        self.tail = Segment(1)

    @property
    def end(self) -> int:
        """A number above those of all present entries; later entries reach it."""
        segment = self.tail
        while segment.is_sealed:
            segment = segment.next()
        return segment.base + len(segment.entries)

    def meet(self) -> None:
        """Between a store and a look at the log: threads that append afterwards see the store.

        The look sees earlier appends. An append and this step take the lock of the same list, so
        one of them comes first.
        """
        segment = self.tail
        meet(segment.entries)
        while segment.is_sealed:
            segment = segment.next()
            meet(segment.entries)

    def tell(self, wrap: Callable[[Append], Append]) -> None:
        """From now on each segment appends by `wrap(append)`, called once for each entry.

        The result of `wrap` must call `append(entry)`; before that call no other thread sees the
        entry. Entries whose append is under way now, or during `tell_no_more`, may be missed or
        not.
        """
        _TOLD.append(wrap)
        self._begin_anew()

    @property
    def is_told(self) -> bool:
        """True if somebody is told of each entry: see `tell`."""
        return bool(_TOLD)

    def tell_no_more(self, wrap: Callable[[Append], Append]) -> None:
        """Undo `tell`."""
        _TOLD.remove(wrap)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """A new segment looks at `_TOLD` once, so that no push has to look."""
        segment = self.tail
        while segment.is_sealed:
            segment = segment.next()
        # The next segment uses the functions of `_TOLD` as they are now.
        self.tail = segment.next()

    def append(self, entry: object) -> None:
        """Give `entry` its place. Never blocks."""
        segment = self.tail
        segment.append(entry)
        if segment.is_sealed:
            self.append_again(segment, entry)

    def append_again(self, segment: Segment, entry: object) -> None:
        """`entry` is in a segment that is sealed by now: append it anew if it was too late."""
        while segment.is_sealed:
            end = segment.seal()
            late = segment.entries[end + 1 :]
            if not any(each is entry for each in late):
                break
            segment = segment.next()
            # The functions of `_TOLD` have had this entry.
            segment.entries.append(entry)
        while segment.is_sealed:
            segment = segment.next()
        self.tail = segment
