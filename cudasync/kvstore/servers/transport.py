"""Floor 5. What brings questions to servers and answers back, and the patience in between."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from cudasync.kvstore.errors import ServerUnavailable
from cudasync.kvstore.servers.server import Question
from cudasync.locks import Lock

if TYPE_CHECKING:
    import numpy as np

    from cudasync.kvstore.arguments import Key
    from cudasync.kvstore.servers.server import Answer

    Value = np.ndarray[Any, Any]

# Between two attempts, and between two looks whether others have come.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.05


class Transport(Protocol):
    """A way to `servers` servers. At most one thread of a worker asks a server at a time."""

    servers: int

    def ask(self, server: int, question: Question, into: Value | None, seconds: float) -> Answer:
        """What the server answers; its first array is in `into`, where that is given.

        Raises what the server raised; ServerUnavailable if no answer came, so that nobody knows
        whether it was asked; ServerLost if none can ever come.
        """
        ...

    def close(self, is_last: bool) -> None:
        """This worker asks no more; `is_last` if none is left that does."""
        ...


class Pause:
    """Waits between looks, longer and longer, until a deadline."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._next_s = _SHORTEST_PAUSE_S

    @property
    def is_over(self) -> bool:
        """True past the deadline."""
        return time.monotonic() > self._deadline

    def wait(self) -> None:
        """Wait a little."""
        time.sleep(self._next_s)
        self._next_s = min(2 * self._next_s, _LONGEST_PAUSE_S)


class Connection:
    """A worker's way to one server: its pushes in order, each asked until it is answered."""

    def __init__(self, transport: Transport, server: int, worker: str, timeout: float) -> None:
        self.server = server
        self._transport, self._worker, self._timeout = transport, worker, timeout
        # Of pushes: the last that was sent, and the last that was answered.
        self._sequence = self._acknowledged = 0
        self._lock = Lock()

    def ask(
        self, name: str, *values: Any, arrays: list[Value] | None = None, into: Value | None = None
    ) -> Answer:
        """What the server answers; asked again while none comes, until the timeout."""
        with self._lock:
            return self._ask(Question(self._worker, name, list(values), arrays or []), into)

    def push(
        self, key: Key, gradient: Value, packed: list[Any] | None, into: Value | None = None
    ) -> Answer:
        """The key's version after this push, whose value goes into `into` if that is given."""
        with self._lock:
            self._sequence += 1
            values = [self._sequence, self._acknowledged, key, packed, into is not None]
            answer = self._ask(Question(self._worker, "push", values, [gradient]), into)
            self._acknowledged = self._sequence
            return answer

    def _ask(self, question: Question, into: Value | None) -> Answer:
        pause = Pause(self._timeout)
        while True:
            try:
                return self._transport.ask(self.server, question, into, self._timeout)
            except ServerUnavailable:
                if pause.is_over:
                    raise
            pause.wait()
