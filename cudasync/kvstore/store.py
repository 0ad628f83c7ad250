"""Floor 5. Stores with all values on every worker: "local", "device", "dist_sync" and "nccl".

Every call consists of pushes on the arrays concerned. So it returns at once, a pull is behind
earlier pushes, and ops that read `out` are behind the pull. A failed op poisons its outputs, as
everywhere. Between processes every worker keeps all values and makes the same updates of the same
sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync import xp
from cudasync.array.copies.copy import copy
from cudasync.array.host.memory import CPU
from cudasync.distributed.work import Work, work_of
from cudasync.driver import current_device
from cudasync.errors import ClosedError
from cudasync.kvstore import array_file, base, device_sum
from cudasync.kvstore.arguments import Key, arrays_of, one_key, pairs
from cudasync.kvstore.base import KVStore
from cudasync.kvstore.local_optimizer import Updater
from cudasync.kvstore.optimizers import Optimizer, optimizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.array.array import Array
    from cudasync.kvstore.collective_store import Between
    from cudasync.kvstore.device_sum import Across


class CopiesStore(KVStore):
    """A store with an array for each key in this process.

    "local" sums and updates on the CPU, "device" on the device of the key's first value. With
    `between`, sums and updates are on the device of the workers' communicator. With `across` the
    devices of this process sum by a communicator.
    """

    def __init__(
        self, kind: str, between: Between | None = None, across: Across | None = None
    ) -> None:
        super().__init__()
        self.type = kind
        self._between = between
        self._across = across
        self._total = device_sum.total if across is None else across.total
        if between is not None:
            self.rank, self.num_workers = between.rank, between.size
        self._stored: dict[Key, Array] = {}
        self._is_closed = False
        self._updater: Callable[[Key, Array, Array], Any] | None = None

    def __repr__(self) -> str:
        return f"<KVStore {self.type}, {len(self._stored)} keys>"

    def init(self, key: Any, value: Any) -> None:
        given = pairs(key, value, "value")
        with self._lock:
            self._raise_if_closed()
            base.of_one_shape(given, self._stored)
            if self._across is not None:
                for _, (first, *_) in given:
                    self._across.check(first.dtype)
            if self._between is not None:
                self._between.agree([(name, arrays[0]) for name, arrays in given])
                self._between.add([name for name, _ in given])
            under_way: list[Work] = []
            for name, (first, *_) in given:
                made = xp.empty(first.shape, dtype=first.dtype, device=self._home(first))
                copy(made, first)
                if self._between is not None:
                    under_way.append(self._between.comm.broadcast(made))
                self._stored[name] = made
            # Before any push: if a push fails on one worker, the communicator is broken there, and
            # others would wait for these values in vain.
            for each in under_way:
                each.wait()

    def push(self, key: Any, value: Any, priority: int = 0) -> Work:
        with self._lock:
            given = self._known(pairs(key, value, "value"), "value")
            if self._compression is not None:
                base.raise_unless_floats(given)
            for name, arrays in given:
                self._push(name, arrays, priority)
            return work_of("push", [self._stored[name] for name, _ in given])

    def pull(self, key: Any, out: Any, priority: int = 0) -> Work:
        with self._lock:
            given = self._known(pairs(key, out, "out"), "out")
            for name, arrays in given:
                for each in arrays:
                    copy(each, self._stored[name], priority=priority)
            return work_of("pull", [each for _, arrays in given for each in arrays])

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> Work:
        outs = value if out is None else out
        with self._lock:
            self._known(pairs(key, outs, "out"), "out")
            self.push(key, value, priority)
            return self.pull(key, outs, priority)

    def row_sparse_pull(self, key: Any, out: Any, row_ids: Any, priority: int = 0) -> Work:
        name = one_key(key)
        with self._lock:
            stored = self._value(name)
            outs = arrays_of(out, "out")
            rows = base.checked_rows(name, row_ids, outs, stored.shape, stored.dtype)
            picked = xp.take(stored, xp.asarray(rows, device=stored.device), axis=0)
            for each in outs:
                copy(each, picked, priority=priority)
            return work_of("row_sparse_pull", outs)

    def set_optimizer(self, given: Optimizer | str, **settings: Any) -> None:
        made = Updater(optimizer(given, settings))
        with self._lock:
            self._updater = made

    def set_updater(self, updater: Callable[[Key, Array, Array], Any]) -> None:
        if not callable(updater):
            raise TypeError(f"an updater must be a function, not {type(updater).__name__}")
        with self._lock:
            self._updater = updater

    def barrier(self) -> None:
        with self._lock:
            held = list(self._stored.values())
        for each in held:
            each.wait()
        if self._between is not None:
            self._between.comm.barrier()

    def save_optimizer_states(self, path: Any, dump_optimizer: bool = False) -> None:
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

        def write() -> None:
            array_file.save(path, about, [array.numpy() for _, _, array in taken])

        if self._between is None:
            write()
        else:
            self._between.on_rank_0(write)

    def load_optimizer_states(self, path: Any) -> None:
        about, arrays = array_file.load(path)
        with self._lock:
            if "settings" in about:
                updater = Updater(optimizer(about["optimizer"], about["settings"]))
            else:
                updater = Updater(self._of_optimizer().optimizer)
            if about["optimizer"] != updater.optimizer.name:
                raise ValueError(
                    f"{path} was saved by the optimizer {about['optimizer']}: set "
                    f"this optimizer first"
                )
            for (key, name), array in zip(about["keys"], arrays, strict=True):
                weight = self._value(key)
                shape = () if name in updater.optimizer.numbers else weight.shape
                if array.shape != shape or array.dtype != weight.dtype:
                    raise ValueError(
                        f"key {key!r} in {path} has another shape or dtype than the stored value"
                    )
                placed = xp.asarray(array, device=weight.device)
                updater.states.setdefault(key, {})[name] = placed
            self._updater = updater

    def close(self) -> None:
        self._is_closed = True
        if self._between is not None:
            self._between.comm.close()
        if self._across is not None:
            self._across.close()

    def _home(self, first: Array) -> Any:
        """The device of a key, from its first value."""
        if self._between is not None:
            return self._between.place
        if self.type == "local":
            return CPU
        # A communicator of devices sums on one of them.
        return current_device() if self._across and first.device == CPU else first.device

    def _push(self, key: Key, arrays: list[Array], priority: int) -> None:
        stored, compression = self._stored[key], self._compression
        if compression is not None and self._between is None:
            arrays = [compression(key, at, each) for at, each in enumerate(arrays)]
        found = self._total(arrays, stored.device, priority)
        if self._between is not None:
            # Without an updater the sum of all workers is itself the new value.
            into = stored if self._updater is None else xp.empty_like(stored)
            self._between.total(key, found, into, compression, priority, self._updater)
            found = into
        if self._updater is not None:
            self._updater(key, found, stored)
        elif found is not stored:
            copy(stored, found, priority=priority)

    def _raise_if_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("the store was closed: create another")

    def _value(self, key: Key) -> Array:
        self._raise_if_closed()
        if key not in self._stored:
            raise KeyError(f"key {key!r} has no value yet: init the key first")
        return self._stored[key]

    def _of_optimizer(self) -> Updater:
        if not isinstance(self._updater, Updater):
            raise ValueError("this store has no optimizer: call set_optimizer first")
        return self._updater
