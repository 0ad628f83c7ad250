"""Floor 2. The table of worker states, and the workers that pushes rely on.

Each worker writes only its own row (a replaced worker loses it). Any thread copies the table in one
step. DESIGN.md has the transitions, and the rings at each.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from cudasync.atomic import offer

if TYPE_CHECKING:
    from cudasync.engine.host.worker import Worker


class State(Enum):
    """The states of a living worker. A worker that has ended, or not begun, has no row."""

    WORKING = "working"
    """Awake: takes ready ops and drains the log. A push rings for another worker."""

    SEARCHING = "searching"
    """Awake, and pushes rely on it: it looks at the log once more before it sleeps."""

    WATCHING = "watching"
    """Naps while others are awake, and joins when planning stalls. Pushes rely on it."""

    ASLEEP = "asleep"
    """Sleeps until rung, or is about to sleep: it has left `searching` and looks once more."""

    BLOCKED = "blocked"
    """Waits inside its op: its slot is lent to another worker."""

    AWAY = "away"
    """Awake, in an op of another pool: its slot is lent to another worker."""


# Globals, since access to an attribute of the class costs more.
WORKING, SEARCHING, WATCHING = State.WORKING, State.SEARCHING, State.WATCHING
ASLEEP, BLOCKED, AWAY = State.ASLEEP, State.BLOCKED, State.AWAY


class States:
    """The table of one pool."""

    __slots__ = ("rows", "searching")

    def __init__(self) -> None:
        self.rows: dict[Worker, State] = {}
        # The workers that pushes rely on: a push that finds one here does not ring. Their rows are
        # SEARCHING or WATCHING. Any thread may remove another's entry, which costs a ring.
        self.searching: dict[Worker, None] = {}

    def enter(self, worker: Worker, state: State) -> None:
        """Change the calling worker's state to `state`.

        The worker is in `searching` only while its row is SEARCHING or WATCHING.
        """
        if state is SEARCHING or state is WATCHING:
            self.rows[worker] = state
            self.searching[worker] = None
        else:
            self.searching.pop(worker, None)
            self.rows[worker] = state

    def leave(self, worker: Worker) -> None:
        """Remove a worker that ends or was replaced."""
        self.searching.pop(worker, None)
        self.rows.pop(worker, None)

    def uncover(self) -> None:
        """A watching worker went to work, or a slot became vacant.

        If no worker watches, pushes must ring: the workers that they rely on may be in long ops.
        """
        if self.searching and WATCHING not in self.now():
            self.searching.clear()

    def is_any_at_rest(self) -> bool:
        """True if a worker may take a ring. (`now`, inlined.)"""
        states = list(self.rows.values())
        return ASLEEP in states or WATCHING in states

    def now(self) -> list[State]:
        """The states of all workers."""
        return list(self.rows.values())


class Slot:
    """The right to be a worker of a pool: one of the threads started for it gets it."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: list[object] = []

    def take(self, who: object) -> bool:
        """True if `who` has the slot from now on: for the first caller."""
        return offer(self._holders, who) is who

    @property
    def is_taken(self) -> bool:
        return bool(self._holders)
