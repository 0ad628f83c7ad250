"""Floor 5. The errors of servers of keys, and their attributes."""

from __future__ import annotations

from cudasync.distributed.errors import DistError


class ServerUnavailable(DistError):
    """A server did not answer in time; `server` is its number.

    The server may have done the request or not. It does no request twice.
    """

    def __init__(self, server: int, reason: str) -> None:
        self.server = server
        super().__init__(
            f"server {server} did not answer: {reason}; it may have done the request, and never "
            f"does a request twice"
        )


class ServerLost(DistError):
    """A server is gone for good, or came back without its data; `server` is its number."""

    def __init__(self, server: int, reason: str) -> None:
        self.server = server
        self.reason = reason
        super().__init__(
            f"server {server} is lost: {reason}; restart from a checkpoint, or give create() a "
            f"folder=, from which servers recover"
        )


class WorkersBehind(DistError, TimeoutError):
    """Other workers stayed too far behind, or away, for too long; `workers` names them."""

    def __init__(self, what: str, workers: tuple[str, ...], seconds: float) -> None:
        self.workers = workers
        told = ", ".join(workers) or "some workers"
        super().__init__(
            f"{what} waited {seconds:g} s for {told}: they are late, dead, or wait elsewhere"
        )
