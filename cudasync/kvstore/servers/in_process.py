"""Floor 5. Servers in this process, called by its threads: for trying programs, and for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore.servers.server import Server

if TYPE_CHECKING:
    from cudasync.kvstore.servers.exchange import Steps
    from cudasync.kvstore.servers.server import Answer, Question

    Value = np.ndarray[Any, Any]

# Requests whose answers are the server's own arrays.
_LENDS = frozenset({"push", "pull"})


class InProcessServers:
    """`servers` servers; stores with the same servers share their keys.

    With a `folder` the servers keep their data there, and begin with the folder's data. It is
    theirs until `shutdown`, or the end of a `with` block.
    """

    # An interrupted request would leave its server half changed.
    is_resumable = False

    def __init__(self, servers: int = 1, folder: Any = None, **more: Any) -> None:
        self.servers = servers
        self._folder, self._more = folder, more
        self.running = [self._begun(number) for number in range(servers)]

    def restart(self, server: int) -> None:
        """End a server, which loses its memory, and start it again."""
        self.running[server].close()
        self.running[server] = self._begun(server, is_restart=True)

    def shutdown(self) -> None:
        """End the servers: their files stay, and other servers may begin with the folder."""
        for each in self.running:
            each.close()

    def __enter__(self) -> InProcessServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def steps(self, server: int, question: Question, into: Value | None, seconds: float) -> Steps:
        """As `Transport.steps`, in one step."""
        yield from ()
        return self.ask(server, question, into, seconds)

    def ask(self, server: int, question: Question, into: Value | None, seconds: float) -> Answer:
        """The result of `steps`, in the caller's thread."""
        asked = self.running[server]
        if question.name not in _LENDS:
            return asked.ask(question)
        with asked.shard.lock:
            found, answered = asked.ask(question)
            return found, received(answered, into, copies=True)

    def close(self, is_last: bool) -> None:
        """Do nothing: the servers live until `shutdown`."""

    def _begun(self, number: int, *, is_restart: bool = False) -> Server:
        return Server(number, self.servers, self._folder, is_restart=is_restart, **self._more)


def received(arrays: list[Value], into: Value | None, *, copies: bool = False) -> list[Value]:
    """The arrays of an answer, the first of them in `into`; `copies` also copies the others."""
    if into is None or not arrays:
        return [each.copy() for each in arrays] if copies else arrays
    np.copyto(into, arrays[0].reshape(into.shape), casting="no")
    return [into, *arrays[1:]]
