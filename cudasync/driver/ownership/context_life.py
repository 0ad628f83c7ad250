"""Floor 1. One life of a primary context: from its first use, or a reset, to the next reset.

What is noted for later is noted here and not with the context. So a thread that is late notes it of
the life that it was in, and a reset on another thread takes away nothing of the next one.
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

    # What a finaliser noted: how to destroy what.
    Garbage: TypeAlias = tuple[Callable[[Any], Any], Any]


class Life:
    """What lives in a context until it is reset. Compared by identity: a handle knows its own."""

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
        # What has no event behind it: until the device is synchronized.
        self.kept_for_long: list[object] = []
        # Of arrays in memory that ends with it.
        self.forms: dict[Any, Form] = {}
        # What is to refuse from its end on: `refuse()` of each that is alive then.
        self.refusing: deque[weakref.ref[Any]] = deque()

    def end(self) -> None:
        """The context was reset. The work is over one way or another: nothing uses what was kept
        for it, and nothing is left to destroy."""
        for held in (self.in_flight, self.garbage, self.blocking_garbage, self.kept):
            held.clear()
        self.kept_for_long.clear()
        for each in list(self.refusing):
            alive = each()
            if alive is not None:
                alive.refuse()
