"""Floor 5. A server: its requests and answers, which transports carry.

Any number of threads may call. A request has a name, plain values, and arrays; an answer has values
and arrays.
"""

from __future__ import annotations

import glob
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np

from cudasync.kvstore import array_file
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

    With `is_restart` it goes on with the workers of the server that it replaces. Otherwise a new
    job begins, and nobody waits for the workers of the job before.

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
        is_restart: bool = False,
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
        # A checkpoint that was read, and waits for the other servers to have read theirs.
        self._prepared: Shard | None = None
        # By folder: the newest checkpoint there of this server's.
        self._stamps: dict[str, int] = {}
        self._last_stamp = 0
        if self._folder is not None:
            self.shard = self._folder.open(_replay)
            if not is_restart:
                self._note(["begin"])
                self.shard.begin()

    def ask(self, question: Question) -> Answer:
        """Do a worker's request; exceptions go to the worker."""
        worker, name, values, arrays = question
        if name not in QUESTIONS:
            raise ValueError(f"a server knows no {name!r}")
        self._heard[worker] = self._clock()
        found: Answer = getattr(self, name)(worker, arrays, *values)
        return found

    def join(
        self,
        worker: str,
        arrays: list[Value],
        rank: int,
        workers: int,
        lineage: str,
        is_whole: bool,
    ) -> Answer:
        """The name of the data, whether all servers have them, and the last passed barrier.

        `lineage` and `is_whole` are server 0's answer. ServerLost if this server has other data, or
        none where it should have some.
        """
        with self.shard.lock:
            known = self.shard.lineage
            may_be_new = not is_whole and "" in (known, lineage)
            if known != lineage and not may_be_new:
                what = "data of another job or restore" if known else "no data"
                raise ServerLost(
                    self._number,
                    f"it has {what}, unlike server 0: bring back the files of the server that "
                    f"lacks them, or empty the folders of all servers and restore a checkpoint",
                )
            if not known:
                self.name(worker, [], lineage or uuid4().hex[:12], False)
            passed = self.shard.join(
                worker, rank, workers, lambda: self._note(["join", worker, rank, workers])
            )
            return [self.shard.lineage, self.shard.is_whole, passed], []

    def name(self, worker: str, arrays: list[Value], lineage: str, is_whole: bool) -> Answer:
        """Name the data; `is_whole` says that all servers have data of this name."""
        with self.shard.lock:
            self._note(["name", lineage, is_whole])
            self.shard.lineage, self.shard.is_whole = lineage, is_whole
        return None, []

    def leave(self, worker: str, arrays: list[Value]) -> Answer:
        """The number of workers that are left."""
        with self.shard.lock:
            self._note(["leave", worker])
            return self.shard.leave(worker), []

    def init(self, worker: str, arrays: list[Value], key: Key) -> Answer:
        self.shard.init(key, arrays[0], lambda: self._note(["init", key], arrays))
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
        self.shard.set_optimizer(
            name, settings, lambda: self._note(["set_optimizer", name, settings])
        )
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

    def arrive(
        self, worker: str, arrays: list[Value], number: int, workers: int, told: str
    ) -> Answer:
        """Whether all workers have reached this barrier, and what they told the others there."""
        # The journal has each arrival, because a worker past the barrier would not repeat it.
        record = ["arrive", worker, number, workers, told]
        found = self.shard.arrive(worker, number, workers, told, lambda: self._note(record))
        return list(found), []

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
        state = dict(zip(names, arrays, strict=True))
        self.shard.set_state(key, state, lambda: self._note(["set_states", key, names], arrays))
        return None, []

    def stamp(self, worker: str, arrays: list[Value]) -> Answer:
        """The number of a new checkpoint of all servers; it rises. Server 0 is asked."""
        with self._lock:
            self._last_stamp = max(self._last_stamp + 1, time.time_ns())
            return self._last_stamp, []

    def checkpoint(
        self, worker: str, arrays: list[Value], path: str | None, stamp: int = 0
    ) -> Answer:
        """Write this server's file beside the one in the folder `path`, which `keep` replaces.

        None is the server's own folder, which needs no other server's files to recover.
        """
        if path is not None:
            about = {**self._about, "stamp": stamp}
            self.shard.checkpoint(self._next(path, stamp), lambda: about)
            return None, []
        if self._folder is None:
            raise ValueError(
                "no folder is given: give it to checkpoint(folder) or to create(folder=)"
            )
        with self._lock:
            self._folder.checkpoint(self.shard, stamp)
        return None, []

    def keep(self, worker: str, arrays: list[Value], path: str, stamp: int) -> Answer:
        """Replace the file in the folder, since all servers have written theirs.

        Of two checkpoints at once the newer one remains, on all servers.
        """
        with self._lock, suppress(FileNotFoundError):
            if stamp > self._stamps.get(path, 0):
                os.replace(self._next(path, stamp), self._file(path))
                self._stamps[path] = stamp
            # Files of older checkpoints that did not come about, because a server was killed.
            for each in glob.glob(f"{glob.escape(path)}/server-{self._number}.*.next"):
                if int(each.rsplit(".", 2)[1]) <= stamp:
                    os.unlink(each)
            array_file.delete_leftovers(f"{path}/server-{self._number}.")
        return None, []

    def prepare(
        self, worker: str, arrays: list[Value], path: str | None, stamp: int | None
    ) -> Answer:
        """Read this server's file of the checkpoint `stamp`, and keep it for `restore`.

        The answer is its stamp. None is any stamp; None for the folder drops what was read.
        """
        self._prepared = None
        if path is None:
            return None, []
        made, told = self._read(path, stamp)
        self._prepared = made
        return told["stamp"], []

    def restore(
        self, worker: str, arrays: list[Value], path: str, stamp: int, lineage: str
    ) -> Answer:
        """Replace all data by what `prepare` has read, including the table of sequence numbers.

        The data get this new name, so that a server that lacks the restore is noticed.
        """
        with self._lock:
            if self.shard.lineage == lineage:
                return None, []
            made = self._prepared or self._read(path, stamp)[0]
            made.take_workers_of(self.shard)
            made.lineage, made.is_whole = lineage, True
            if self._folder is not None:
                self._folder.checkpoint(made, stamp)
            self.shard, self._prepared = made, None
        return None, []

    def close(self) -> None:
        """Close the folder's journal; files stay."""
        if self._folder is not None:
            self._folder.close()

    def _file(self, path: str) -> str:
        return f"{path}/server-{self._number}.state"

    def _next(self, path: str, stamp: int) -> str:
        return f"{path}/server-{self._number}.{stamp}.next"

    def _read(self, path: str, stamp: int | None) -> tuple[Shard, dict[str, Any]]:
        """The checkpoint with this stamp: the file, or the one that did not come to replace it."""
        made, told = Shard.restore(self._file(path))
        if stamp is not None and told["stamp"] != stamp:
            with suppress(FileNotFoundError):
                made, told = Shard.restore(self._next(path, stamp))
        raise_unless_alike(told, self._about, path)
        # A server that writes a checkpoint by itself gives it no stamp.
        found = told["stamp"]
        if self._about["servers"] > 1 and (not found or stamp not in (None, found)):
            raise ValueError(
                f"the files in {path} are of different times: give the folder of a checkpoint that "
                f"all servers have written together"
            )
        return made, told

    def _note(self, record: list[Any], arrays: list[Value] | None = None) -> None:
        if self._folder is not None:
            self._folder.note(record, arrays or [])

    def _try_checkpoint(self) -> None:
        """Write a checkpoint. Every push is in the journal, so a failed one is retried later."""
        with self._lock, suppress(OSError):
            assert self._folder is not None
            self._folder.checkpoint(self.shard)


QUESTIONS = frozenset(
    {
        "arrive", "checkpoint", "init", "join", "keep", "leave", "like", "name", "optimizer",
        "prepare", "pull", "push", "restore", "set_optimizer", "set_states", "stamp", "states",
    }
)  # fmt: skip


def _replay(shard: Shard, record: Any, arrays: list[Value]) -> None:
    """Repeat a change of a journal."""
    name, *values = record
    if name in ("begin", "join", "leave", "arrive"):
        getattr(shard, name)(*values)
    elif name == "name":
        shard.lineage, shard.is_whole = values
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
