"""Floor 5. Servers on ranks of MPI: the last ranks, which do nothing else.

A server listens to each worker by a separate request. So it notices a dead worker if MPI reports
the death, and still hears the other workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.distributed.mpi_library import library, start
from cudasync.distributed.ranks import world
from cudasync.kvstore.errors import ServerLost
from cudasync.kvstore.servers import messages
from cudasync.kvstore.servers.exchange import finished
from cudasync.kvstore.servers.mpi_posts import (
    ANSWERS,
    ASKS,
    LONGEST_HEAD,
    Late,
    Pace,
    Patience,
    Post,
)
from cudasync.kvstore.servers.server import Question, Server

if TYPE_CHECKING:
    from cudasync.kvstore.servers.exchange import Steps

    Value = np.ndarray[Any, Any]


class MpiServers:
    """A worker's transport to the servers, which are the last ranks of `handle`."""

    is_resumable = True

    def __init__(self, handle: Any, servers: int) -> None:
        self.servers = servers
        self._handle, self._MPI = handle, library()
        self._first = handle.size - servers
        self._lost: dict[int, str] = {}
        self._paces = [Pace() for _ in range(servers)]
        # Memory that MPI may still read or write after a deadline.
        self._let_go: list[Any] = []

    def steps(self, server: int, question: Question, into: Value | None, seconds: float) -> Steps:
        """As `Transport.steps`. MPI loses nothing, so a late server is lost.

        So is a server if Ctrl-C ended a step: a later question would get the answer to this one.
        """
        if server in self._lost:
            raise ServerLost(server, self._lost[server])
        pace = self._paces[server]
        post = Post(self._MPI, self._handle, self._first + server, seconds, self._let_go, pace)
        head = messages.head_of(messages.told_of(question), question.arrays)
        if len(head) > LONGEST_HEAD // 2:
            raise ValueError(f"the message of {len(head)} bytes is too long: use a shorter key")
        try:
            post.send(head, question.arrays, ASKS)
            found, got = yield from post.receive(ANSWERS, into)
            yield from post.flush()
        except (Late, self._MPI.Exception) as error:
            why = f"no answer in {seconds:g} s" if isinstance(error, Late) else str(error)
            self._lost[server] = why
            raise ServerLost(server, why) from None
        except BaseException as error:
            self._lost[server] = f"{type(error).__name__} in the middle of an exchange"
            raise
        answer = messages.unwrapped(server, found, got)
        if into is not None and got and got[0] is not into:
            raise ValueError(f"server {server} has {got[0].dtype}{got[0].shape}, not {into.shape}")
        return answer

    def close(self, is_last: bool) -> None:
        """Do nothing: a server ends when all workers have left or are dead."""


def serve(handle: Any, servers: int, server: Server, seconds: float) -> None:
    """Answer every worker until all have left, or are dead."""
    MPI = library()
    heads = {worker: bytearray(LONGEST_HEAD) for worker in range(handle.size - servers)}
    waiting = {w: handle.Irecv([head, MPI.BYTE], source=w, tag=ASKS) for w, head in heads.items()}
    named: dict[int, str] = {}
    # Memory of late exchanges that MPI may still read or write.
    let_go: list[Any] = []
    # Received arrays, one question at a time: new memory for each would cost more than the copy.
    scratch = np.empty(0, np.uint8)

    def memory(size: int, number: int) -> Value:
        nonlocal scratch
        if number:
            return np.empty(size, np.uint8)
        if size > scratch.size:
            scratch = np.empty(size, np.uint8)
        return scratch[:size]

    def answer(worker: int, length: int) -> None:
        post = Post(MPI, handle, worker, seconds, let_go, pace)
        told, arrays = finished(post.rest(heads[worker], length, ASKS, memory))
        named[worker] = told["worker"]
        found, out = messages.answered(server, messages.question_of(told, arrays))
        post.send(messages.head_of(found, out), out, ANSWERS)
        finished(post.flush())
        if told["name"] == "leave":
            del waiting[worker]
        else:
            waiting[worker] = handle.Irecv([heads[worker], MPI.BYTE], source=worker, tag=ASKS)

    # The waits within an exchange, and those for a request.
    pace, idle = Pace(), Pace()
    status, patience = MPI.Status(), Patience(idle)
    while waiting:
        for worker, request in list(waiting.items()):
            try:
                if request.Test(status):
                    patience.end()
                    answer(worker, status.Get_count(MPI.BYTE))
                    patience = Patience(idle)
            except (Late, MPI.Exception):
                # The worker is dead or too late: the server drops it. The other workers go on
                # and do not wait for it.
                del waiting[worker]
                if worker in named:
                    messages.answered(server, Question(named[worker], "leave", [], []))
        patience.wait()


def join(
    servers: int, folder: Any, timeout: float, silence_s: float
) -> tuple[MpiServers, int, int]:
    """A worker's transport, its rank, and the number of workers. A server's rank serves, then ends.

    Blocks until all ranks are here; CollectiveTimeout if a rank does not come. ValueError if no
    rank would be a worker.
    """
    start(("init", 0, timeout))
    size = library().COMM_WORLD.size
    if not 0 < servers < size:
        raise ValueError(
            f"{servers} servers on {size} ranks leave no rank for a worker: start {servers + 1} "
            f"or more ranks with mpiexec -n"
        )
    handle, workers = world(timeout).handle, size - servers
    if handle.rank < workers:
        return MpiServers(handle, servers), handle.rank, workers
    made = Server(handle.rank - workers, servers, folder, silence_s=silence_s)
    serve(handle, servers, made, timeout)
    made.close()
    raise SystemExit(0)
