"""Floor 5. The key-value store of one process: "local" on the CPU, "device" on the devices.

MXNet's interface. Every call is made of pushes on the arrays concerned, so it returns at once, a
pull is behind the pushes before it, and what reads `out` is behind the pull. What fails poisons
as everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync import xp
from cudasync.array.copying import copy
from cudasync.array.host.memory import CPU
from cudasync.distributed.work import Work, work_of
from cudasync.kvstore import states
from cudasync.kvstore.arguments import Key, arrays_of, checked_keys, pairs, raise_unless_fit
from cudasync.kvstore.compression import Compression
from cudasync.kvstore.optimizers import Optimizer, optimizer
from cudasync.kvstore.updating import Updater
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.array.array import Array

TYPES = ("local", "device")
_CAPABLE = {"optimizer": True, "row_sparse": True, "async": False, "checkpoint": False}


class KVStore:
    """Values by key, shared by the devices of this process; made by `create`.

    "local" adds up and updates on the CPU, "device" where the key's first value was.
    """

    rank = 0
    num_workers = 1

    def __init__(self, kind: str) -> None:
        self.type = kind
        self._stored: dict[Key, Array] = {}
        self._compression: Compression | None = None
        self._updater: Callable[[Key, Array, Array], Any] | None = None
        # Held while a call pushes, never while anything runs: two threads' steps do not mix.
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<KVStore {self.type}, {len(self._stored)} keys>"

    def is_capable(self, capability: str) -> bool:
        """True for "optimizer" and "row_sparse"; ValueError for a word that names nothing."""
        if capability.lower() not in _CAPABLE:
            raise ValueError(f"a capability is one of {', '.join(_CAPABLE)}, not {capability!r}")
        return _CAPABLE[capability.lower()]

    def init(self, key: Any, value: Any) -> None:
        """Give new keys their values, of which copies are kept; ValueError for a key that is known.

        Of a list of arrays for one key the first counts.
        """
        given = pairs(key, value, "value")
        with self._lock:
            for name, arrays in given:
                if name in self._stored:
                    raise ValueError(f"key {name!r} has a value: push to it")
                for each in arrays[1:]:
                    raise_unless_fit(name, [each], arrays[0], "value")
            for name, (first, *_) in given:
                home = CPU if self.type == "local" else first.device
                made = xp.empty(first.shape, dtype=first.dtype, device=home)
                copy(made, first)
                self._stored[name] = made

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> Work:
        """`init`, then `pull`."""
        with self._lock:
            self.init(key, value)
            return self.pull(key, out, priority)

    def push(self, key: Any, value: Any, priority: int = 0) -> Work:
        """Add up the arrays of a key, in the order of the list, and bring the sum in.

        Without optimizer and updater the sum replaces what is stored; else they are called with
        it. A larger `priority` lets copies go first. Returns at once.
        """
        with self._lock:
            given = self._known(pairs(key, value, "value"), "value")
            if self._compression is not None:
                for name, arrays in given:
                    if arrays[0].dtype.kind != "f":
                        raise TypeError(f"key {name!r} is {arrays[0].dtype}: floats are compressed")
            for name, arrays in given:
                self._push(name, arrays, priority)
            return work_of("push", [self._stored[name] for name, _ in given])

    def pull(self, key: Any, out: Any, priority: int = 0) -> Work:
        """Copy what is stored to each `out`, behind all earlier pushes. Returns at once."""
        with self._lock:
            given = self._known(pairs(key, out, "out"), "out")
            for name, arrays in given:
                for each in arrays:
                    copy(each, self._stored[name], priority=priority)
            return work_of("pull", [each for _, arrays in given for each in arrays])

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> Work:
        """`push`, then `pull` to `out`, by default to the arrays that were pushed."""
        outs = value if out is None else out
        with self._lock:
            self._known(pairs(key, outs, "out"), "out")
            self.push(key, value, priority)
            return self.pull(key, outs, priority)

    def row_sparse_pull(self, key: Any, out: Any, row_ids: Any, priority: int = 0) -> Work:
        """Copy the rows with these numbers to each `out`: row i of it becomes row `row_ids[i]`.

        `row_ids` are integers, for all outs of the one key; IndexError for a row that is not there.
        """
        (name,) = checked_keys(key)
        rows = np.asarray(row_ids)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TypeError("row_ids are integers in a list or an array of one dimension")
        with self._lock:
            stored = self._value(name)
            if not stored.ndim:
                raise ValueError(f"key {name!r} is a number and has no rows")
            if rows.size and not (rows.min() >= 0 and rows.max() < stored.shape[0]):
                raise IndexError(f"key {name!r} has rows 0 to {stored.shape[0] - 1}")
            outs = arrays_of(out, "out")
            shape = (len(rows), *stored.shape[1:])
            for each in outs:
                if each.shape != shape or each.dtype != stored.dtype:
                    raise ValueError(f"these rows are {stored.dtype}{shape}, not {each.shape}")
            ids = xp.asarray(rows.astype(np.int64), device=stored.device)
            picked = xp.take(stored, ids, axis=0)
            for each in outs:
                copy(each, picked, priority=priority)
            return work_of("row_sparse_pull", outs)

    def set_optimizer(self, given: Optimizer | str, **settings: Any) -> None:
        """Update by this optimizer from now on: an `Optimizer`, or a name with settings."""
        made = Updater(optimizer(given, settings))
        with self._lock:
            self._updater = made

    def set_updater(self, updater: Callable[[Key, Array, Array], Any]) -> None:
        """Call `updater(key, sum, stored)` at each push: it changes `stored` in place, by pushes.

        It runs in the caller's thread, under the store's lock, so it must not call the store.
        """
        if not callable(updater):
            raise TypeError(f"an updater is a function, not {type(updater).__name__}")
        with self._lock:
            self._updater = updater

    def set_gradient_compression(self, settings: dict[str, Any]) -> None:
        """Compress what is pushed: `{"type": "1bit" or "2bit", "threshold": 0.5}`.

        Each place in a key's list has a residual of its own. Floats only: a push of others is a
        TypeError then.
        """
        more = {name: value for name, value in settings.items() if name != "type"}
        made = Compression(settings.get("type", ""), **more)
        with self._lock:
            self._compression = made

    def barrier(self) -> None:
        """Block until what this store has pushed is over; raises what failed of it."""
        with self._lock:
            held = list(self._stored.values())
        for each in held:
            each.wait()

    def save_optimizer_states(self, path: Any, dump_optimizer: bool = False) -> None:
        """Write the state of every key to a file, with name and settings too if asked. Blocks.

        OSError where it can not be written; an older file is whole then.
        """
        with self._lock:
            updater = self._of_optimizer()
            taken = [
                (key, name, array.copy())
                for key, state in updater.states.items()
                for name, array in state.items()
            ]
        chosen = updater.optimizer
        about: dict[str, Any] = {"keys": [[k, n] for k, n, _ in taken], "optimizer": chosen.name}
        if dump_optimizer:
            about["settings"] = chosen.settings
        states.save(path, about, [array.numpy() for _, _, array in taken])

    def load_optimizer_states(self, path: Any) -> None:
        """Take the states of a file, and the optimizer if it is in there. Blocks for the file.

        ValueError for a damaged file, one of another optimizer, and keys that do not fit.
        """
        about, arrays = states.load(path)
        with self._lock:
            if "settings" in about:
                updater = Updater(optimizer(about["optimizer"], about["settings"]))
            else:
                updater = Updater(self._of_optimizer().optimizer)
            if about["optimizer"] != updater.optimizer.name:
                raise ValueError(f"{path} is of {about['optimizer']}: set that optimizer first")
            for (key, name), array in zip(about["keys"], arrays, strict=True):
                weight = self._value(key)
                shape = () if name in updater.optimizer.numbers else weight.shape
                if array.shape != shape or array.dtype != weight.dtype:
                    raise ValueError(f"key {key!r} in {path} does not fit what is stored")
                placed = xp.asarray(array, device=weight.device)
                updater.states.setdefault(key, {})[name] = placed
            self._updater = updater

    def _push(self, key: Key, arrays: list[Array], priority: int) -> None:
        stored = self._stored[key]
        home = stored.device
        if self._compression is not None:
            arrays = [self._compression(key, at, each) for at, each in enumerate(arrays)]
        total = self._at(home, arrays[0], priority)
        for each in arrays[1:]:
            total = xp.add(total, self._at(home, each, priority))
        if self._updater is None:
            copy(stored, total, priority=priority)
        else:
            self._updater(key, total, stored)

    def _at(self, home: Any, x: Array, priority: int) -> Array:
        if x.device == home:
            return x
        made: Array = xp.empty(x.shape, dtype=x.dtype, device=home)
        copy(made, x, priority=priority)
        return made

    def _known(self, given: list[tuple[Key, list[Array]]], what: str) -> Any:
        for name, arrays in given:
            raise_unless_fit(name, arrays, self._value(name), what)
        return given

    def _value(self, key: Key) -> Array:
        if key not in self._stored:
            raise KeyError(f"key {key!r} has no value yet: init it first")
        return self._stored[key]

    def _of_optimizer(self) -> Updater:
        if not isinstance(self._updater, Updater):
            raise ValueError("this store has no optimizer: call set_optimizer first")
        return self._updater


def create(name: str = "local") -> KVStore:
    """A key-value store: "local" updates on the CPU, "device" on the devices.

    ValueError for another name.
    """
    if name not in TYPES:
        raise ValueError(f"a key-value store is one of {', '.join(TYPES)}, not {name!r}")
    return KVStore(name)
