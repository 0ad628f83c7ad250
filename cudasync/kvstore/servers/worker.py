"""Floor 5. One worker's requests to the servers, and its waits; no engine."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from cudasync.distributed.errors import DistError
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
        self._barriers = 0  # That this worker has passed.
        self.join()

    def join(self) -> None:
        """Begin to number pushes, under a new name; the servers wait for no other of this rank.

        ServerLost if one of the servers lacks the data of the others.
        """
        worker = f"{self.rank}-{uuid4().hex[:12]}"
        self.connections = [
            Connection(self._transport, server, worker, self._timeout)
            for server in range(self.servers)
        ]
        first, *others = self.connections
        who = self.rank, self.num_workers
        lineage, is_whole, self._barriers = first.ask("join", *who, "", False)[0]
        for each in others:
            each.ask("join", *who, lineage, is_whole)
        if not is_whole:
            # All servers have data of this name now. From here on one that has none has lost them.
            first.ask("name", lineage, True)

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

    def barrier(self, told: str = "") -> list[str]:
        """Wait until all workers have called it equally often; what they told each other here.

        WorkersBehind after the timeout. A call that raises does not count.
        """
        number = self._barriers + 1

        def look() -> list[str] | None:
            question = number, self.num_workers, told
            is_over, found = self.connections[0].ask("arrive", *question)[0]
            return found if is_over else None

        heard: list[str] = self._until(look, f"barrier {number}", lambda: ())
        self._barriers = number
        return heard

    def on_rank_0(self, does: Callable[[], None]) -> None:
        """Run `does` on rank 0, and wait for its end on all workers.

        Its exception is raised on rank 0. The other workers raise a ValueError as such, and
        DistError for other exceptions.
        """
        failed: Exception | None = None
        if self.rank == 0:
            try:
                does()
            except Exception as error:
                failed = error
        heard = self.barrier("" if failed is None else json.dumps(_described(failed)))
        if failed is not None:
            raise failed
        for each in heard:
            is_value_error, why = json.loads(each)
            raise (ValueError if is_value_error else DistError)(f"rank 0 failed: {why}")

    def checkpoint(self, path: str | None) -> None:
        """Let all servers write a file; those in `path` replace older ones once all are there."""
        (stamp,) = self.connections[0].ask("stamp")[:1]
        self.ask_all("checkpoint", path, stamp)
        if path is not None:
            self.ask_all("keep", path, stamp)

    def restore(self, path: str) -> None:
        """Let all servers return to a checkpoint, once each has read its own file."""
        stamp = None
        try:
            for each in self.connections:
                stamp = each.ask("prepare", path, stamp)[0]
        except BaseException:
            with suppress(CudasyncError, OSError):
                self.ask_all("prepare", None, None)
            raise
        self.ask_all("restore", path, stamp, uuid4().hex[:12])

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


def _described(error: Exception) -> list[Any]:
    return [isinstance(error, ValueError), f"{type(error).__name__}: {error}"]
