"""Floor 2. The table of worker states: which worker of a pool is where, and who may count on it.

Each worker writes its own row and no other (who is replaced loses it); anybody copies the table, in
one step. DESIGN.md has
the transitions, and who rings whom at each.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from cudasync.atomic import offer

if TYPE_CHECKING:
    from cudasync.engine.host.worker import Worker


class State(Enum):
    """Where a worker is in its life. One that has ended, or not begun, has no row."""

    WORKING = "working"
    """Awake: takes what is ready and goes through the log. A push rings for another one."""

    SEARCHING = "searching"
    """The same, and pushes count on it: it looks at the log once more before it sleeps."""

    WATCHING = "watching"
    """Naps while others are awake, and joins when planning does not go on. Pushes count on it."""

    ASLEEP = "asleep"
    """Sleeps until rung, or is about to: it has left `searching` and looks once more."""

    BLOCKED = "blocked"
    """Waits inside of its op: its slot is lent to another worker."""


# Attributes of the class cost more, each time.
WORKING, SEARCHING, WATCHING = State.WORKING, State.SEARCHING, State.WATCHING
ASLEEP, BLOCKED = State.ASLEEP, State.BLOCKED


class States:
    """The table of one pool."""

    __slots__ = ("rows", "searching")

    def __init__(self) -> None:
        self.rows: dict[Worker, State] = {}
        # The workers that a push counts on: if it finds one here, it does not ring. Their rows are
        # SEARCHING or WATCHING. Anybody may take others out, which costs a ring.
        self.searching: dict[Worker, None] = {}

    def enter(self, worker: Worker, state: State) -> None:
        """The calling worker goes over to `state`.

        It is in `searching` only while its row says that it is awake.
        """
        if state is SEARCHING or state is WATCHING:
            self.rows[worker] = state
            self.searching[worker] = None
        else:
            self.searching.pop(worker, None)
            self.rows[worker] = state

    def leave(self, worker: Worker) -> None:
        """A worker ends; or it was replaced, and whoever found that out says so."""
        self.searching.pop(worker, None)
        self.rows.pop(worker, None)

    def uncover(self) -> None:
        """Somebody is at work who watched, or a slot is vacant anew.

        If nobody watches, pushes are to count on nobody and ring: those that they counted on may be
        in long ops.
        """
        if self.searching and WATCHING not in self.now():
            self.searching.clear()

    def now(self) -> list[State]:
        """Where all are."""
        return list(self.rows.values())


class Slot:
    """A right to be a worker of a pool: of the threads that are started for it, one has it."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: list[object] = []

    def take(self, who: object) -> bool:
        """True if it is `who`'s from now on: for the first who asks."""
        return offer(self._holders, who) is who

    @property
    def is_taken(self) -> bool:
        return bool(self._holders)
