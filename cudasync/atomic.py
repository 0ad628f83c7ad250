"""Floor 0. The only operations that threads may share data through without a lock.

What each rests on, in both builds of CPython. *C call*: another thread cannot come in between,
since the GIL is let go between bytecodes only. *Own lock*: without a GIL the call holds the mutex
of that one object (`Py_BEGIN_CRITICAL_SECTION`); taking it is a sequentially consistent
compare-and-set, letting it go a release.

| operation | with a GIL | free-threaded, 3.14 |
|---|---|---|
| `list.append pop copy extend remove`, slice assignment | C call | own lock |
| `dict.setdefault pop clear`, `d[k] = v`, `list(d)`, `list(d.values())` | C call | own lock |
| `deque.append popleft`, `heappush`, `heappop` of integers | C call | own lock |
| `next(itertools.count)` | C call | compare-and-set in a loop |
| store to a slot of an object | one bytecode | own lock, the value by release |
| load from a slot, `list[i]`, `len`, truth of a list or dict | one bytecode | no lock: acquire |
| `lock.acquire release locked` | C call | compare-and-set |

So two threads that take the lock of the *same* object have an order, and the second sees all that
the first stored before. Three rules follow, and the engine uses no others:

- **One winner.** Of several that append to one list, one is first in it (`offer`, `claim`). Of
  several that pop one key or item, one gets it.
- **Two stores to one object.** Two threads that each store to a slot of one object and then look
  at the slot that the other stored to: one of them sees the other.
- **A meeting.** Stores to different objects, then a step of each on one list (`meet`, or an append
  on one side and a `copy` on the other), then the looks: one of them sees the other.

A look alone (`if things:`) takes no lock, and orders nothing. One C call that allocates tuples,
lists or dicts one after the other is *not* one step: before 3.12 the collector may run at any of
them, and with it Python code and a change of threads. `list(d)` and `d.copy()` are one step over a
dict of plain keys, `list(d.items())` is not; `max(d)` is one with a GIL only.

`tests/test_litmus.py` holds real threads to the rules, in whichever build runs it;
`tests/engine/models` explores schedules of what is built on them, with planted bugs. Where a loop
is hot it writes the one C call out and names the block here.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

T = TypeVar("T")


class Tickets:
    """Numbers 1, 2, 3, ...: each is handed out exactly once, to exactly one caller.

    Order of numbers is the order of calls.
    """

    __slots__ = ("count", "next")

    def __init__(self) -> None:
        # `next(tickets.count)` takes one at half the cost of `tickets.next()`.
        self.count = count(1)
        self.next = self.count.__next__

    @property
    def taken(self) -> int:
        """How many have been handed out. Reading takes none."""
        # "count(7)" when 7 is the next: nothing else tells it without taking it from 3.12 on,
        # where pickling is deprecated.
        return int(repr(self.count)[len("count(") : -1]) - 1


class Inbox(Generic[T]):
    """A queue that any thread, a finaliser or a signal handler may put into.

    `put` never blocks and never runs Python code of ours or of the item, so it is safe while the
    same thread is anywhere in the library, in particular inside a garbage collection. Items
    leave in the order they came; no two callers of `take` get the same one.
    """

    __slots__ = ("items", "put")

    def __init__(self) -> None:
        # To be looked at only.
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
    """A cell that is written once: the first `offer` wins, every caller learns the winner.

    The compare-and-set is `dict.setdefault` with a string key, one C call.
    """

    __slots__ = ("_cell",)

    def __init__(self) -> None:
        self._cell: dict[str, T] = {}

    def offer(self, value: T) -> T:
        """Write `value` if nothing is written yet; return what is written now."""
        return self._cell.setdefault("value", value)

    def get(self) -> T | None:
        """What is written, None before that."""
        return self._cell.get("value")


def meet(things: list[Any]) -> None:
    """A step on a list that changes nothing: two threads that both take one have an order.

    What a thread stored before its step, the one that comes second sees after its own. So of two
    threads that each store, take a step and look at what the other stored, one sees the other.
    """
    things.extend(())


def offer(cell: list[T], value: T) -> T:
    """The first append to an empty list wins; return the winner.

    The same as `Once` at a third of its cost: the cell is a plain list, made by whoever owns it.
    Offers that lost stay behind the winner, where nobody looks.
    """
    cell.append(value)
    return cell[0]


class Roll(Generic[T]):
    """Entries that any thread may add, go through and strike out, each without a lock.

    By number, not by what they are about: a key that is used again would let whoever strikes out
    the old entry take the new one away, however it looked before.
    """

    __slots__ = ("_entries", "_numbers")

    def __init__(self) -> None:
        self._entries: dict[int, T] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: T) -> int:
        """Enter something; who looks from now on sees it. Returns its number."""
        number = next(self._numbers)
        self._entries[number] = entry
        return number

    def remove(self, number: int) -> None:
        """Take out the entry of a number, if it is there."""
        self._entries.pop(number, None)

    def all(self) -> list[T]:
        """What is there now, the oldest first: a copy."""
        return list(self._entries.values())

    def strike(self, is_over: Callable[[T], bool]) -> None:
        """Take out the entries that are over. Several threads may do so at once."""
        for number in list(self._entries):
            entry = self._entries.get(number)
            if entry is not None and is_over(entry):
                self._entries.pop(number, None)


class Gate:
    """What something still waits for, as a set: to be told twice of the same is harmless.

    A counter would have to be counted down exactly once for each; of a set, one thread may remove
    what another has removed already. A dict is taken as it is, so it must be nobody else's.
    """

    __slots__ = ("_awaited",)

    def __init__(self, awaited: Iterable[Hashable]) -> None:
        self._awaited = awaited if awaited.__class__ is dict else dict.fromkeys(awaited)

    def arrive(self, what: Hashable) -> bool:
        """`what` need not be waited for any more; True if nothing is left.

        Several callers may get True, one after the last arrival at the latest.
        """
        self._awaited.pop(what, None)
        return not self._awaited


class Bell:
    """A place to sleep until somebody rings: a ring wakes one sleeper, now or the next to come.

    Rings do not add up: who is woken looks for all there is to do. `ring` never blocks, also from a
    finaliser or a signal handler; `is_silent` tells that no ring waits for a sleeper.

    A raw lock as a binary semaphore: it is held while silent, and protects nothing. (A
    `SimpleQueue` would do, but for its `get(timeout)`: with two sleepers, one that is woken for
    nothing may go on to sleep without a timeout, up to Python 3.13 at least.)
    """

    __slots__ = ("_lock", "is_silent")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()
        self.is_silent = self._lock.locked

    def ring(self) -> None:
        # RuntimeError: it is ringing already.
        with suppress(RuntimeError):
            self._lock.release()

    def sleep(self, timeout: float | None = None) -> bool:
        """Sleep until a ring; False if `timeout` seconds passed without one."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))


class _Mark:
    """An entry of a log that is not somebody's. `_pool` is what the engine asks of all entries."""

    __slots__ = ("_name",)
    _pool = None

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


# Behind the last entry of a segment that counts; in the place of an entry that is done with.
SEAL: Final = _Mark("SEAL")
DONE: Final = _Mark("DONE")


# Who is told of entries: see `Log.tell`.
_TOLD: list[Callable[[Any], object]] = []


def _telling(append: Callable[[object], None]) -> Callable[[object], None]:
    # Who is told changes with the segment, so that is settled here, by one look.
    told = tuple(_TOLD)
    if not told:
        return append
    (only, *others) = told

    def tell(entry: object) -> None:
        only(entry)
        append(entry)

    def tell_each(entry: object) -> None:
        for each in told:
            each(entry)
        append(entry)

    return tell_each if others else tell


class Segment:
    """A stretch of a log: what is appended behind the SEAL does not count."""

    __slots__ = (
        "__weakref__",
        "append",
        "base",
        "end",
        "entries",
        "following",
        "is_sealed",
        "sealers",
    )

    def __init__(self, base: int) -> None:
        # The number that the first entry has in the whole log.
        self.base = base
        # Whoever has done with an entry puts DONE in its place.
        self.entries: list[object] = []
        # While somebody is told, he hears of an entry before others can see it.
        self.append = _telling(self.entries.append)
        # Set before the SEAL is appended: who appends and sees it unset was in time.
        self.is_sealed = False
        # One item per thread that is about to append a SEAL; where the first SEAL is, once known.
        self.sealers: list[None] = []
        self.end: int | None = None
        # Offered to by whoever comes to the end first.
        self.following: list[Segment] = []

    def seal(self) -> int:
        """Let no more entries count; the index of the SEAL. Any number of threads may do it."""
        self.is_sealed = True
        end = self.end
        if end is None:
            self.sealers.append(None)
            start = len(self.entries)
            self.entries.append(SEAL)
            # Who is alone until here was the first: others append theirs later. Else it takes a
            # look at all of them.
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

    The idea of an array queue with segments (Morrison and Afek 2013; Correia and Ramalhete 2016),
    without removal: readers go by position, so that two of them may read the same entry.
    """

    __slots__ = ("tail",)

    def __init__(self) -> None:
        # A hint: the last segment or one before it. Who finds it sealed goes on from there.
        self.tail = Segment(1)

    @property
    def end(self) -> int:
        """A number that no entry appended so far has reached, and the next ones will."""
        segment = self.tail
        while segment.is_sealed:
            segment = segment.next()
        return segment.base + len(segment.entries)

    def meet(self) -> None:
        """Between a store and a look at the log: whoever appends afterwards sees the store.

        Who appended before is seen by the look. An append and this one take the lock of the same
        list, so one of them comes first.
        """
        segment = self.tail
        meet(segment.entries)
        while segment.is_sealed:
            segment = segment.next()
            meet(segment.entries)

    def tell(self, heard: Callable[[Any], object]) -> None:
        """Have `heard(entry)` called for each entry, once, before it is appended. Of those that are
        on their way now it may hear or not, and so behind `tell_no_more`."""
        _TOLD.append(heard)
        self._begin_anew()

    def tell_no_more(self, heard: Callable[[Any], object]) -> None:
        """Undo `tell`."""
        _TOLD.remove(heard)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """A segment asks once, when it is made, whether anybody is told: so no push has to."""
        segment = self.tail
        while segment.is_sealed:
            segment = segment.next()
        # The next one holds whoever is told now, and not who was.
        self.tail = segment.next()

    def append(self, entry: object) -> None:
        """Give `entry` its place. Never blocks."""
        segment = self.tail
        segment.append(entry)
        if segment.is_sealed:
            self.append_again(segment, entry)

    def append_again(self, segment: Segment, entry: object) -> None:
        """`entry` was appended to a segment that is sealed by now: if that was too late, go on."""
        while segment.is_sealed:
            end = segment.seal()
            late = segment.entries[end + 1 :]
            if not any(each is entry for each in late):
                break
            segment = segment.next()
            # Whoever is told has heard of it by now.
            segment.entries.append(entry)
        while segment.is_sealed:
            segment = segment.next()
        self.tail = segment
