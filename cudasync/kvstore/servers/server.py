"""Floor 5. A server: its requests and answers, which transports carry.

Any number of threads may call. A request has a name, plain values, and arrays; an answer has values
and arrays.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudasync.kvstore.bit_packing import Packed
from cudasync.kvstore.errors import ServerLost
from cudasync.kvstore.servers.folder import Folder, raise_unless_alike
from cudasync.kvstore.servers.shard import Shard
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.kvstore.arguments import Key

    Value = np.ndarray[Any, Any]
    Answer = tuple[Any, list[Value]]


class Question(NamedTuple):
    """A request of `worker`: a name of `QUESTIONS`, plain values, and arrays."""

    worker: str
    name: str
    values: list[Any]
    arrays: list[Value]


# Other workers do not wait for a worker that has been silent for this long.
SILENCE_S = 60.0


class Server:
    """Server `number` of `count`; with a folder it recovers all its data from there.

    A value in an answer is the server's own array. The transport must send it before the next
    request, or under the shard's lock.
    """

    def __init__(
        self,
        number: int,
        count: int,
        folder: Any = None,
        *,
        silence_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
        **more: Any,
    ) -> None:
        self._number = number
        self._about = {"server": number, "servers": count}
        self._silence_s, self._clock = silence_s, clock
        self._heard: dict[str, float] = {}
        self._begun = clock()
        self._lock = Lock()
        self._folder = None if folder is None else Folder(folder, self._about, **more)
        self.shard = Shard()
        if self._folder is not None:
            self.shard = self._folder.open(_replay)

    def ask(self, question: Question) -> Answer:
        """Do a worker's request; exceptions go to the worker."""
        worker, name, values, arrays = question
        if name not in QUESTIONS:
            raise ValueError(f"a server knows no {name!r}")
        self._heard[worker] = self._clock()
        found: Answer = getattr(self, name)(worker, arrays, *values)
        return found

    def join(self, worker: str, arrays: list[Value]) -> Answer:
        with self.shard.lock:
            self._note(["join", worker])
            self.shard.join(worker)
        return None, []

    def leave(self, worker: str, arrays: list[Value]) -> Answer:
        """The number of workers that are left."""
        with self.shard.lock:
            self._note(["leave", worker])
            return self.shard.leave(worker), []

    def init(self, worker: str, arrays: list[Value], key: Key) -> Answer:
        with self.shard.lock:
            if key not in self.shard:
                self._note(["init", key], arrays)
                self.shard.init(key, arrays[0])
        return self.like(worker, [], key)

    def like(self, worker: str, arrays: list[Value], key: Key) -> Answer:
        """Shape and dtype of a key; None before it has a value."""
        if key not in self.shard:
            return None, []
        value = self.shard.held(key).value
        return [list(value.shape), value.dtype.str], []

    def set_optimizer(
        self, worker: str, arrays: list[Value], name: str, settings: dict[str, Any]
    ) -> Answer:
        with self.shard.lock:
            self._note(["set_optimizer", name, settings])
            self.shard.set_optimizer(name, settings)
        return None, []

    def push(
        self,
        worker: str,
        arrays: list[Value],
        sequence: int,
        acknowledged: int,
        key: Key,
        packed: list[Any] | None,
        wants_value: bool,
    ) -> Answer:
        """The version after the push, and the value if the worker wants it.

        `acknowledged` is the worker's last acknowledged push: ServerLost if this server does not
        know that push.
        """
        if self.shard.last(worker) < acknowledged:
            raise ServerLost(
                self._number, f"it knows {self.shard.last(worker)} of {acknowledged} pushes"
            )
        gradient = arrays[0]
        if packed is not None:
            like = self.shard.held(key).value
            gradient = Packed(*packed).unpack(gradient, like.size, like.dtype).reshape(like.shape)

        def note() -> None:
            self._note(["push", worker, sequence, key, packed], arrays)

        version = self.shard.push(worker, sequence, key, gradient, note)
        if self._folder is not None and self._folder.is_long:
            self._try_checkpoint()
        return version, [self.shard.held(key).value] if wants_value else []

    def pull(
        self, worker: str, arrays: list[Value], key: Key, bound: int | None, row_start: int = 0
    ) -> Answer:
        """The version and the value, or only the rows with the given numbers.

        If `bound` is exceeded, the answer names the workers that are too far behind, and has no
        value. It leaves out workers that have been silent for a while.
        """
        if bound is not None:
            behind = self.shard.behind(worker, key, bound)
            now = self._clock()
            waited = [w for w in behind if now - self._heard.get(w, self._begun) < self._silence_s]
            if waited:
                return {"behind": sorted(waited)}, []
        held = self.shard.held(key)
        if arrays:
            return held.version, [np.take(held.value, arrays[0] - row_start, axis=0)]
        return held.version, [held.value]

    def arrive(self, worker: str, arrays: list[Value], number: int) -> Answer:
        """The number of workers that have reached this barrier."""
        with self.shard.lock:
            # The journal has each arrival, because a worker past the barrier would not repeat it.
            if self.shard.arrivals.get(worker, 0) < number:
                self._note(["arrive", worker, number])
            return self.shard.arrive(worker, number), []

    def optimizer(self, worker: str, arrays: list[Value]) -> Answer:
        """Name and settings of the optimizer; None if it is not set."""
        chosen = self.shard.optimizer
        return None if chosen is None else [chosen.name, chosen.settings], []

    def states(self, worker: str, arrays: list[Value], key: Key) -> Answer:
        """The names and arrays of a key's state."""
        with self.shard.lock:
            found = {name: each.copy() for name, each in self.shard.held(key).state.items()}
        return list(found), list(found.values())

    def set_states(self, worker: str, arrays: list[Value], key: Key, names: list[str]) -> Answer:
        with self.shard.lock:
            self._note(["set_states", key, names], arrays)
            self.shard.set_state(key, dict(zip(names, arrays, strict=True)))
        return None, []

    def checkpoint(self, worker: str, arrays: list[Value], path: str | None) -> Answer:
        """Write this server's file to the folder `path`; None is the server's own folder."""
        if path is not None:
            self.shard.checkpoint(f"{path}/server-{self._number}.state", lambda: dict(self._about))
            return None, []
        if self._folder is None:
            raise ValueError(
                "no folder is given: give it to checkpoint(folder) or to create(folder=)"
            )
        with self._lock:
            self._folder.checkpoint(self.shard)
        return None, []

    def restore(self, worker: str, arrays: list[Value], path: str) -> Answer:
        """Replace all data by a checkpoint's, including the table of sequence numbers."""
        made, told = Shard.restore(f"{path}/server-{self._number}.state")
        raise_unless_alike(told, self._about, path)
        made.forget_members()
        made.arrivals = dict(self.shard.arrivals)
        with self._lock:
            if self._folder is not None:
                self._folder.checkpoint(made)
            self.shard = made
        return None, []

    def close(self) -> None:
        """Close the folder's journal; files stay."""
        if self._folder is not None:
            self._folder.close()

    def _note(self, record: list[Any], arrays: list[Value] | None = None) -> None:
        if self._folder is not None:
            self._folder.note(record, arrays or [])

    def _try_checkpoint(self) -> None:
        """Write a checkpoint. Every push is in the journal, so a failed one is retried later."""
        with self._lock:
            assert self._folder is not None
            try:
                self._folder.checkpoint(self.shard)
            except OSError:
                return


QUESTIONS = frozenset(
    {
        "arrive", "checkpoint", "init", "join", "leave", "like", "optimizer", "pull", "push",
        "restore", "set_optimizer", "set_states", "states",
    }
)  # fmt: skip


def _replay(shard: Shard, record: Any, arrays: list[Value]) -> None:
    """Repeat a change of a journal."""
    name, *values = record
    if name in ("join", "leave", "arrive"):
        getattr(shard, name)(*values)
    elif name == "init":
        shard.init(values[0], arrays[0])
    elif name == "set_optimizer":
        shard.set_optimizer(*values)
    elif name == "set_states":
        key, names = values
        shard.set_state(key, dict(zip(names, arrays, strict=True)))
    else:
        worker, sequence, key, packed = values
        gradient = arrays[0]
        if packed is not None:
            like = shard.held(key).value
            gradient = Packed(*packed).unpack(gradient, like.size, like.dtype).reshape(like.shape)
        shard.push(worker, sequence, key, gradient)
