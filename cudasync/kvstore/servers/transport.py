"""Floor 5. Transports, which carry requests to servers and answers back, with retries."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from cudasync.kvstore.errors import ServerUnavailable
from cudasync.kvstore.servers.exchange import Exchange
from cudasync.kvstore.servers.server import Question
from cudasync.locks import Lock

if TYPE_CHECKING:
    import numpy as np

    from cudasync.kvstore.arguments import Key
    from cudasync.kvstore.servers.exchange import Steps
    from cudasync.kvstore.servers.server import Answer

    Value = np.ndarray[Any, Any]

# The pause between two attempts, and between two polls for other workers.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.05


class Transport(Protocol):
    """A way to `servers` servers. At most one thread of a worker calls a server at a time."""

    servers: int
    # True if the thread that waits for an answer may make the exchange itself: Ctrl-C in a wait of
    # its steps changes nothing.
    is_resumable: bool

    def steps(self, server: int, question: Question, into: Value | None, seconds: float) -> Steps:
        """The steps return the server's answer; its first array is in `into`, if given.

        They raise the server's exception. ServerUnavailable if no answer came; the server may then
        have the request or not. ServerLost if no answer can ever come.
        """
        ...

    def close(self, is_last: bool) -> None:
        """Note that this worker calls no more; `is_last` if no other worker is left."""
        ...


class Pause:
    """Waits between polls, longer and longer, until a deadline."""

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
    """A worker's way to one server: pushes in order, each repeated until it is answered."""

    def __init__(self, transport: Transport, server: int, worker: str, timeout: float) -> None:
        self.server = server
        self._transport, self._worker, self._timeout = transport, worker, timeout
        # The numbers of the last push that was sent, and of the last that was answered.
        self._sequence = self._acknowledged = 0
        self.lock = Lock()
        # The exchange that Ctrl-C interrupted: it ends before another one begins.
        self.unfinished: Exchange | None = None

    def ask(
        self, name: str, *values: Any, arrays: list[Value] | None = None, into: Value | None = None
    ) -> Answer:
        """The server's answer; the request is repeated without an answer, until the timeout."""
        answer: Answer = Exchange(self, self.asking(name, *values, arrays=arrays, into=into))()
        return answer

    def asking(
        self, name: str, *values: Any, arrays: list[Value] | None = None, into: Value | None = None
    ) -> Steps:
        """As `ask`, as the steps of an exchange."""
        return self._ask(Question(self._worker, name, list(values), arrays or []), into)

    def pushing(
        self, key: Key, gradient: Value, packed: list[Any] | None, into: Value | None = None
    ) -> Steps:
        """The steps return the key's version after this push; `into` receives the value."""
        self._sequence += 1
        values = [self._sequence, self._acknowledged, key, packed, into is not None]
        answer = yield from self._ask(Question(self._worker, "push", values, [gradient]), into)
        self._acknowledged = self._sequence
        return answer

    def _ask(self, question: Question, into: Value | None) -> Steps:
        pause = Pause(self._timeout)
        while True:
            try:
                return (
                    yield from self._transport.steps(self.server, question, into, self._timeout)
                )
            except ServerUnavailable:
                if pause.is_over:
                    raise
            yield pause.wait
