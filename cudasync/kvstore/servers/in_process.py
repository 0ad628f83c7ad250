"""Floor 5. Servers in this process, asked by its threads: for programs to try, and for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore.servers.server import Server

if TYPE_CHECKING:
    from cudasync.kvstore.servers.server import Answer, Question

    Value = np.ndarray[Any, Any]


class InProcessServers:
    """`servers` servers; stores that are given the same ones share their keys.

    With a `folder` the servers keep what they have there, and begin with what is there.
    """

    def __init__(self, servers: int = 1, folder: Any = None, **more: Any) -> None:
        self.servers = servers
        self._folder, self._more = folder, more
        self.running = [self._begun(number) for number in range(servers)]

    def restart(self, server: int) -> None:
        """End a server, with all that is in memory, and begin it anew."""
        self.running[server].close()
        self.running[server] = self._begun(server)

    def ask(self, server: int, question: Question, into: Value | None, seconds: float) -> Answer:
        """As `Transport.ask`, in the caller's thread."""
        given = question._replace(arrays=[each.copy() for each in question.arrays])
        found, answered = self.running[server].ask(given)
        return found, received(answered, into)

    def _begun(self, number: int) -> Server:
        return Server(number, self.servers, self._folder, **self._more)

    def close(self, is_last: bool) -> None:
        """Nothing: who made the servers lets go of them."""


def received(arrays: list[Value], into: Value | None) -> list[Value]:
    """The arrays of an answer, the first of them in `into`."""
    if into is None or not arrays:
        return arrays
    np.copyto(into, arrays[0].reshape(into.shape), casting="no")
    return [into, *arrays[1:]]
