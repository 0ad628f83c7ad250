"""Floor 5. A server: what it is asked, and what it answers. Transports bring both.

Any number of threads may ask. A question is a name, plain values, and arrays; so is an answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudasync.kvstore.errors import ServerLost
from cudasync.kvstore.packing import Packed
from cudasync.kvstore.servers.folder import Folder, raise_unless_alike
from cudasync.kvstore.servers.shard import Shard
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.kvstore.arguments import Key

    Value = np.ndarray[Any, Any]
    Answer = tuple[Any, list[Value]]


class Question(NamedTuple):
    """What `worker` asks: a name of `QUESTIONS`, plain values, and arrays."""

    worker: str
    name: str
    values: list[Any]
    arrays: list[Value]


# A worker that has not been heard of for so long is not waited for.
SILENCE_S = 60.0


class Server:
    """Server `number` of `count`; with a folder it comes back from there with all it had.

    A value that it answers is what it has: to be sent on before the next question, or under the
    shard's lock.
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
        self._arrived: dict[str, int] = {}
        self._lock = Lock()
        self._folder = None if folder is None else Folder(folder, self._about, **more)
        self.shard = Shard()
        if self._folder is not None:
            self.shard = self._folder.open(_replay)

    def ask(self, question: Question) -> Answer:
        """Do what a worker asks for. Errors are the worker's."""
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
        """How many workers are left."""
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
        """The version after it, and the value if it is wanted.

        `acknowledged` is the worker's last push that it knows to be done: ServerLost if that is
        not known here.
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
        """The version and the value; of rows alone, where their numbers are given.

        The workers that are too far behind, and no value, where `bound` is not kept. Who has not
        been heard of for a while is not waited for.
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
        """How many workers have come to their barrier of this number."""
        with self._lock:
            self._arrived[worker] = max(number, self._arrived.get(worker, 0))
            return sum(each >= number for each in self._arrived.values()), []

    def optimizer(self, worker: str, arrays: list[Value]) -> Answer:
        """Name and settings of the optimizer; None before there is one."""
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
        """Write a file of its own to that folder; into its own folder for None."""
        if path is not None:
            self.shard.checkpoint(f"{path}/server-{self._number}.state", lambda: dict(self._about))
            return None, []
        if self._folder is None:
            raise ValueError("checkpoint(folder) takes a folder, or create() does")
        with self._lock:
            self._folder.checkpoint(self.shard)
        return None, []

    def restore(self, worker: str, arrays: list[Value], path: str) -> Answer:
        """Have what a checkpoint has, and nothing else; the table of sequences too."""
        made, told = Shard.restore(f"{path}/server-{self._number}.state")
        raise_unless_alike(told, self._about, path)
        made.forget_members()
        with self._lock:
            if self._folder is not None:
                self._folder.checkpoint(made)
            self.shard = made
        return None, []

    def close(self) -> None:
        """Answer no more; files stay."""
        if self._folder is not None:
            self._folder.close()

    def _note(self, record: list[Any], arrays: list[Value] | None = None) -> None:
        if self._folder is not None:
            self._folder.note(record, arrays or [])

    def _try_checkpoint(self) -> None:
        """Every push is in the journal already, so one that can not be written is tried later."""
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
    """Make a change of a journal again."""
    name, *values = record
    if name == "join":
        shard.join(*values)
    elif name == "leave":
        shard.leave(*values)
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
