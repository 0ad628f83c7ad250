"""Cellar. The search over orders: dynamic partial-order reduction with source sets and sleep sets.

After Abdulla, Aronis, Jonsson and Sagonas, "Optimal dynamic partial order reduction" (POPL 2014),
source-DPOR. A run is a sequence of steps. Two steps race if only their common memory orders them,
so that they may change places. Each race of a run is a reason for another run with the later step
first. Orders that differ only in independent steps are one order, and sleep sets ensure that only
one of them is run.

The search knows nothing of streams and memory. A step has three parts: a key that is the same in
every run, a footprint, and the set of steps that come before it under any choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from cudasync.softgpu.core.exploration.footprints import Footprint

    Key: TypeAlias = tuple[int, int, int]
    """Stream, place in the stream, turn."""


@dataclass(slots=True)
class Step:
    """One step of the current run; `before` is a set of places in the run, as bits."""

    key: Key
    footprint: Footprint
    before: int
    can_wait: bool
    """True if the step cannot run until the memory that it reads has a certain value."""


@dataclass(slots=True)
class _Node:
    """A moment of choice in a run."""

    candidates: list[Key]
    chosen: Key
    sleep: dict[Key, Footprint]
    """The keys that need no choice here, because all orders that begin with them were run."""
    wanted: list[Key] = field(default_factory=list)
    """The keys to be chosen here in some run, beginning with the first chosen one."""
    done: dict[Key, Footprint] = field(default_factory=dict)


class Search:
    """Chooses the next step, run after run, until all orders have been run."""

    def __init__(self, replay: Sequence[Key] = ()) -> None:
        self._nodes: list[_Node] = []
        self._steps: list[Step] = []
        self._replay = list(replay)
        # The number of new steps of this run; later steps repeat other runs. None: all are new.
        self._fresh_until: int | None = None
        self.has_diverged = False
        """True once a run did not offer an earlier choice again: the program has changed."""
        self.orders = 0

    # One run

    def begin(self) -> None:
        self._steps = []
        self._fresh_until = None

    @property
    def is_redundant(self) -> bool:
        """True if the rest of the current run repeats another run."""
        return self._fresh_until is not None

    @property
    def order(self) -> list[Key]:
        """The choices so far."""
        return [step.key for step in self._steps]

    def choose(self, candidates: Sequence[Key]) -> Key:
        """Choose a candidate: the first, unless there is a reason for another."""
        place = len(self._steps)
        if place < len(self._nodes):
            node = self._nodes[place]
            if node.chosen in candidates:
                return node.chosen
            self.has_diverged = True
            del self._nodes[place:]
        if place < len(self._replay):
            chosen = self._replay[place]
            if chosen in candidates:
                return chosen
            self.has_diverged = True
        if place > len(self._nodes) or self.is_redundant:
            return candidates[0]
        sleep = self._sleep_at(place)
        chosen = next((key for key in candidates if key not in sleep), candidates[0])
        if chosen in sleep:
            self._fresh_until = place
        else:
            self._nodes.append(_Node(list(candidates), chosen, sleep, [chosen]))
        return chosen

    def _sleep_at(self, place: int) -> dict[Key, Footprint]:
        if not place:
            return {}
        before, step = self._nodes[place - 1], self._steps[place - 1]
        return {
            key: footprint
            for key, footprint in {**before.sleep, **before.done}.items()
            if key != step.key and not footprint.conflicts(step.footprint)
        }

    def took(self, step: Step) -> None:
        """Note a step that has been taken."""
        self._steps.append(step)

    # Between two runs

    def end(self) -> bool:
        """End the run; True if another run is needed."""
        fresh = self._steps[: self._fresh_until]
        if not self.is_redundant:
            self.orders += 1
        if self._replay:
            return False
        if len(self._nodes) > len(fresh):
            self.has_diverged = True
            del self._nodes[len(fresh) :]
        self._find_races(fresh)
        while self._nodes:
            node = self._nodes[-1]
            node.done[node.chosen] = fresh[len(self._nodes) - 1].footprint
            again = [k for k in node.wanted if k not in node.done and k not in node.sleep]
            if again:
                node.chosen = again[0]
                return True
            self._nodes.pop()
        return False

    def _find_races(self, steps: Sequence[Step]) -> None:
        # `before[j]`: all steps that happen before step j, by order or memory, also indirectly.
        before: list[int] = []
        for j, late in enumerate(steps):
            mask = 0
            for i in _bits(late.before):
                mask |= before[i] | 1 << i
            races = []
            if late.footprint.touches_anything:
                for i in range(j - 1, -1, -1):
                    if not mask >> i & 1 and late.footprint.conflicts(steps[i].footprint):
                        races.append(i)
                        mask |= before[i] | 1 << i
            before.append(mask)
            for i in races:
                self._want_reversed(steps, before, i, j)

    def _want_reversed(self, steps: Sequence[Step], before: Sequence[int], i: int, j: int) -> None:
        """Plan a run in which step j comes before step i, unless one is planned already."""
        # `parts`: the steps between that do not depend on i, then j. Such a run may begin with any
        # part that depends on no other part.
        parts = [*(k for k in range(i + 1, j) if not before[k] >> i & 1), j]
        inside = sum(1 << k for k in parts)
        keys = [steps[k].key for k in parts if not before[k] & inside]
        node = self._nodes[i]
        if any(key in node.wanted or key in node.sleep for key in keys):
            return
        possible = [key for key in keys if key in node.candidates]
        if possible:
            node.wanted.append(possible[0])
        elif not steps[j].can_wait:
            node.wanted += [key for key in node.candidates if key not in node.wanted]


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
