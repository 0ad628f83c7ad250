"""Floor 5. One worker's requests to the servers, and its waits; no engine."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from cudasync.errors import CudasyncError
from cudasync.kvstore.errors import ServerLost, WorkersBehind
from cudasync.kvstore.servers.exchange import Exchange
from cudasync.kvstore.servers.key_placement import Part, Placed
from cudasync.kvstore.servers.transport import Connection, Pause, Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.kvstore.arguments import Key
    from cudasync.kvstore.servers.exchange import Steps

    Value = np.ndarray[Any, Any]


class Worker:
    """Worker `rank` of `num_workers`; any number of threads may call."""

    def __init__(
        self,
        transport: Transport,
        rank: int,
        num_workers: int,
        *,
        staleness: int | None,
        timeout: float,
        big_elements: int,
    ) -> None:
        self.rank, self.num_workers, self.staleness = rank, num_workers, staleness
        self.servers = transport.servers
        # Whether the thread that waits for a push or a pull may make the exchange itself.
        self.is_resumable = transport.is_resumable and staleness is None
        self._transport, self._timeout, self._big_elements = transport, timeout, big_elements
        self._barriers = 0
        self.join()

    def join(self) -> None:
        """Begin to number pushes, under a new name."""
        worker = f"{self.rank}-{uuid4().hex[:12]}"
        self.connections = [
            Connection(self._transport, server, worker, self._timeout)
            for server in range(self.servers)
        ]
        self.ask_all("join")

    def leave(self) -> None:
        """Tell all servers; a server that does not answer learns it from the silence."""
        left = []
        for each in self.connections:
            with suppress(CudasyncError, OSError):
                left.append(each.ask("leave")[0])
        self._transport.close(not any(left))

    def ask_all(self, name: str, *values: Any) -> None:
        """Send each server the same request."""
        for each in self.connections:
            each.ask(name, *values)

    def optimizer(self) -> list[Any] | None:
        """Name and settings of the servers' optimizer; None if it is not set."""
        found: list[Any] | None = self.connections[0].ask("optimizer")[0]
        return found

    def barrier(self) -> None:
        """Wait until all workers have called it equally often; WorkersBehind after the timeout."""
        self._barriers += 1
        number = self._barriers

        def look() -> bool | None:
            came = self.connections[0].ask("arrive", number)[0]
            return True if came >= self.num_workers else None

        self._until(look, f"barrier {number}", lambda: ())

    def place(self, key: Key, value: Value) -> Placed:
        """A new key on its servers, with rank 0's value or the servers' existing value.

        ValueError if workers give different shapes or dtypes.
        """
        placed = Placed(key, value.shape, value.dtype, self.servers, self._big_elements)
        flat = np.ascontiguousarray(value).reshape(-1)
        for part in placed.parts:
            to = self.connections[part.server]
            if self.rank == 0:
                own = flat[part.start : part.stop].reshape(part.shape)
                shape, dtype = to.ask("init", key, arrays=[own])[0]
            else:
                shape, dtype = self._until(
                    lambda to=to: to.ask("like", key)[0],
                    f"init of key {key!r}",
                    lambda: ("rank 0",),
                )
            if (tuple(shape), np.dtype(dtype)) != (part.shape, placed.dtype):
                told = f"{np.dtype(dtype)}{tuple(shape)}, not {placed.dtype}{part.shape}"
                raise ValueError(
                    f"key {key!r}, or a part of it, is {told}: all workers must "
                    f"init the same shape and dtype"
                )
        return placed

    def push(self, key: Key, part: Part, x: Value, packed: Any, into: Value | None) -> Exchange:
        """The exchange that pushes a part; its new value goes into `into`, if given."""
        to = self.connections[part.server]

        def steps() -> Steps:
            self._seen(part, (yield from to.pushing(key, x, packed, into))[0])

        return Exchange(to, steps())

    def pull_at_once(self, key: Key, part: Part, into: Value) -> Exchange:
        """The exchange that leaves a part's value in `into`, without a bound on staleness."""
        to = self.connections[part.server]

        def steps() -> Steps:
            self._seen(part, (yield from to.asking("pull", key, None, 0, into=into))[0])

        return Exchange(to, steps())

    def pull(
        self, key: Key, part: Part, into: Value | None, rows: list[Value], start: int = 0
    ) -> list[Value]:
        """The value of a part, or its `rows`, counted from `start`.

        Waits while other workers are too far behind; WorkersBehind after the timeout.
        """
        to = self.connections[part.server]
        behind: tuple[str, ...] = ()

        def look() -> list[Value] | None:
            nonlocal behind
            version, arrays = to.ask("pull", key, self.staleness, start, arrays=rows, into=into)
            if isinstance(version, dict):
                behind = tuple(version["behind"])
                return None
            self._seen(part, version)
            return arrays

        found: list[Value] = self._until(look, f"pull of {key!r}", lambda: behind)
        return found

    def rows(self, key: Key, placed: Placed, wanted: Value) -> Value:
        """The rows with the numbers `wanted`, which rise."""
        if not placed.is_by_rows:
            parts = [self.pull(key, part, None, [])[0].reshape(-1) for part in placed.parts]
            whole: Value = np.concatenate(parts).reshape(placed.shape)
            return whole[wanted]
        found, start = [np.empty((0, *placed.shape[1:]), placed.dtype)], 0
        for part in placed.parts:
            stop = start + part.shape[0]
            own = wanted[(wanted >= start) & (wanted < stop)]
            if own.size:
                found += self.pull(key, part, None, [own], start)
            start = stop
        return np.concatenate(found)

    def _seen(self, part: Part, version: int) -> None:
        """Note the server's version; ServerLost if it reported a newer version before."""
        if version < part.version:
            raise ServerLost(
                part.server, f"the server fell back from version {part.version} to {version}"
            )
        part.version = version

    def _until(self, look: Any, what: str, missing: Callable[[], tuple[str, ...]]) -> Any:
        """The result of `look`; WorkersBehind if it is None until the timeout."""
        pause = Pause(self._timeout)
        while (found := look()) is None:
            if pause.is_over:
                raise WorkersBehind(what, missing(), self._timeout)
            pause.wait()
        return found
