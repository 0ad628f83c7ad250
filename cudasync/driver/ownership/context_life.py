"""Floor 1. `Life`: a primary context from its first use, or a reset, to the next reset.

Deferred notes belong to the `Life` and not to the context. So a late thread adds its notes to the
`Life` that it was in, and a reset on another thread removes no note of the next `Life`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable
    from typing import TypeAlias

    from cudasync.driver.arguments.argument_form import Form
    from cudasync.driver.memory.in_flight import InFlight
    from cudasync.driver.streams.event import Event

    # A finaliser's note: the destroying function and its argument.
    Garbage: TypeAlias = tuple[Callable[[Any], Any], Any]


class Life:
    """The objects of a context until its reset. Compared by identity: a handle knows its `Life`."""

    __slots__ = (
        "blocking_garbage",
        "forms",
        "garbage",
        "in_flight",
        "kept",
        "kept_for_long",
        "refusing",
    )

    def __init__(self) -> None:
        # One for each of our streams that the driver still has, garbage or not.
        self.in_flight: set[InFlight] = set()
        self.garbage: deque[Garbage] = deque()
        self.blocking_garbage: deque[Garbage] = deque()
        # Operands, each with the event behind its use.
        self.kept: deque[tuple[Event, object]] = deque()
        # Operands without an event behind them: kept until the device is synchronized.
        self.kept_for_long: list[object] = []
        # Forms of arrays in memory that ends with this life.
        self.forms: dict[Any, Form] = {}
        # Objects that refuse use after its end: `refuse()` is called on each that is alive then.
        self.refusing: deque[weakref.ref[Any]] = deque()

    def end(self) -> None:
        """The context was reset, so its work is over: nothing uses the kept operands, and nothing
        is left to destroy."""
        for held in (self.in_flight, self.garbage, self.blocking_garbage, self.kept):
            held.clear()
        self.kept_for_long.clear()
        for each in list(self.refusing):
            alive = each()
            if alive is not None:
                alive.refuse()
