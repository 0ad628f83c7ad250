"""Floor 3, placement. Schedules tasks on places: HEFT (Topcuoglu, Hariri and Wu, 2002).

Tasks are taken by their upward rank: the time from their start to the end of everything on the
longest path. Each goes to the place where it ends first, in the first gap that is long enough,
after the copies that it needs. A place runs one task after the other, and receives one copy after
the other meanwhile. The place None, the host, runs any number at once.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from typing import TypeAlias

    Place: TypeAlias = Hashable | None
    # The seconds of a copy of so many bytes between places.
    Link: TypeAlias = Callable[[int], float]


class Task(NamedTuple):
    """One step: its possible places with its seconds there, its original place first."""

    seconds: Mapping[Place, float]
    # The indices of its predecessors, and the bytes that it needs of their results.
    before: Sequence[tuple[int, int]] = ()
    # `needs`: bytes that are at a place from the beginning. `leaves`: bytes that must be at a place
    # in the end.
    needs: Sequence[tuple[Place, int]] = ()
    leaves: Sequence[tuple[Place, int]] = ()


class Schedule(NamedTuple):
    """The place of each task, and the time when everything is over."""

    places: list[Place]
    end_s: float


def scheduled(tasks: Sequence[Task], link: Link) -> Schedule:
    """A schedule of `tasks`, each of which stands behind its predecessors."""
    ranks = _ranks(tasks, link)
    found = _Found(tasks, link)
    for at in sorted(range(len(tasks)), key=lambda each: (-ranks[each], each)):
        best = min((found.tried(at, place) for place in tasks[at].seconds), key=_cost)
        found.take(at, best)
    return Schedule(found.places, found.over)


class _Try(NamedTuple):
    """A task at a place: its start and end; the time when its results are where they must be; the
    times when the copies to places end."""

    place: Place
    begin: float
    end: float
    over: float
    copies: Mapping[Place, float]
    copying_s: float

    @property
    def cost(self) -> float:
        """The time of the end plus that of its copies: a copy must save more than it takes."""
        return self.over + self.copying_s


class _Found:
    """A schedule while it is made."""

    def __init__(self, tasks: Sequence[Task], link: Link) -> None:
        self._tasks = tasks
        self._link = link
        self.places: list[Place] = [None] * len(tasks)
        self._ends = [0.0] * len(tasks)
        # For each place: its busy spans, and the end of its last copy, one at a time.
        self._busy: dict[Place, _Busy] = {}
        self._copies: dict[Place, float] = {}
        self.over = 0.0

    def tried(self, at: int, place: Place) -> _Try:
        """The outcome of the task at this place."""
        task, ends, places = self._tasks[at], self._ends, self.places
        ready = max([ends[other] for other, _ in task.before], default=0.0)
        copies: dict[Place, float] = {}
        sources = [(ends[other], places[other], size) for other, size in task.before]
        for begin, where, size in sorted(
            [*sources, *((0.0, where, size) for where, size in task.needs)], key=_begin
        ):
            ready = max(ready, self._copied(begin, where, place, size, copies))
        seconds = task.seconds[place]
        busy = self._busy.get(place)
        begin = ready if busy is None else busy.first_gap(ready, seconds)
        end = over = begin + seconds
        for where, size in task.leaves:
            over = max(over, self._copied(end, place, where, size, copies))
        sizes = [(where, size) for _, where, size in sources] + [*task.needs, *task.leaves]
        copying_s = sum(self._link(size) for where, size in sizes if _is_apart(where, place, size))
        return _Try(place, begin, end, over, copies, copying_s)

    def take(self, at: int, chosen: _Try) -> None:
        """Put the task there."""
        place, begin, end, over, copies, _ = chosen
        self.places[at], self._ends[at] = place, end
        self._copies.update(copies)
        if place is not None and end > begin:
            self._busy.setdefault(place, _Busy()).add(begin, end)
        self.over = max(self.over, over)

    def _copied(
        self, begin: float, source: Place, target: Place, size: int, copies: dict[Place, float]
    ) -> float:
        """The time when so many bytes are at the target."""
        if not _is_apart(source, target, size):
            return begin
        free = copies.get(target, self._copies.get(target, 0.0))
        copies[target] = max(begin, free) + self._link(size)
        return copies[target]


def _begin(source: tuple[float, Place, int]) -> float:
    return source[0]


def _cost(each: _Try) -> float:
    return each.cost


def _is_apart(one: Place, other: Place, size: int) -> bool:
    """True if so many bytes of one place must be copied for the other."""
    return bool(size) and one is not None and other is not None and one != other


def at_home(tasks: Sequence[Task], link: Link) -> Schedule:
    """The schedule with each task at its original place."""
    return scheduled(
        [each._replace(seconds=dict([next(iter(each.seconds.items()))])) for each in tasks], link
    )


def _ranks(tasks: Sequence[Task], link: Link) -> list[float]:
    ranks = [0.0] * len(tasks)
    for at in range(len(tasks) - 1, -1, -1):
        task = tasks[at]
        if len(task.seconds) > 1:
            ranks[at] = max([ranks[at], *(link(size) for _, size in task.leaves)])
        ranks[at] += sum(task.seconds.values()) / len(task.seconds)
        for other, size in task.before:
            can_move = size and (len(task.seconds) > 1 or len(tasks[other].seconds) > 1)
            ranks[other] = max(ranks[other], ranks[at] + (link(size) if can_move else 0.0))
    return ranks


class _Busy:
    """The busy times of a place: sorted, disjoint spans, merged so that they are few."""

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []

    def first_gap(self, ready: float, seconds: float) -> float:
        """The start of the first gap of so many seconds, from `ready` on."""
        begin = ready
        for at in range(bisect_right(self._ends, ready), len(self._ends)):
            if self._starts[at] - begin >= seconds:
                break
            begin = max(begin, self._ends[at])
        return begin

    def add(self, begin: float, end: float) -> None:
        """Mark a gap as busy."""
        starts, ends = self._starts, self._ends
        at = bisect_right(starts, begin)
        if at and ends[at - 1] == begin:
            at -= 1
            begin = starts.pop(at)
            ends.pop(at)
        if at < len(starts) and starts[at] == end:
            starts.pop(at)
            end = ends.pop(at)
        starts.insert(at, begin)
        ends.insert(at, end)
