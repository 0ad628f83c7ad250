"""Floor 5. The interface of key-value stores, which is MXNet's, and its meaning.

A store has an array for each key. `push` adds the arrays of a worker's devices, `pull` copies the
value out. Calls that move values return at once; hazards on their bytes order them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore.arguments import Key, raise_unless_fit
from cudasync.kvstore.compression import Compression
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.array.array import Array
    from cudasync.distributed.work import Work
    from cudasync.kvstore.optimizers import Optimizer

CAPABILITIES = ("optimizer", "row_sparse", "async", "checkpoint")


class KVStore(ABC):
    """Values by key, shared by the devices of one process or of several; made by `create`.

    `type` is the name given to `create`; `rank` is this worker's number, of `num_workers`.
    """

    type: str
    rank = 0
    num_workers = 1
    # The capabilities for which `is_capable` is True.
    capable: frozenset[str] = frozenset({"optimizer", "row_sparse"})

    def __init__(self) -> None:
        self._compression: Compression | None = None
        # Held while a call pushes, so that two threads' steps do not mix. Only calls that block by
        # definition run under it: init, barriers, files.
        self._lock = Lock()

    def is_capable(self, capability: str) -> bool:
        """Whether it has an "optimizer", "row_sparse" pulls, "async" updates, a "checkpoint".

        ValueError for an unknown capability.
        """
        if str(capability).lower() not in CAPABILITIES:
            told = ", ".join(CAPABILITIES)
            raise ValueError(f"a capability is one of {told}, not {capability!r}")
        return capability.lower() in self.capable

    @abstractmethod
    def init(self, key: Any, value: Any) -> None:
        """Give new keys their values, which the store copies; ValueError for a known key.

        The first array of a key's list counts, and with several workers rank 0's value. Between
        processes it blocks until all workers are here.
        """

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> Work:
        """`init`, then `pull`."""
        self.init(key, value)
        return self.pull(key, out, priority)

    @abstractmethod
    def push(self, key: Any, value: Any, priority: int = 0) -> Work:
        """Sum the arrays of a key, in the order of the list, and update the key by the sum.

        An optimizer or updater is called with the sum. Without them the sum replaces the stored
        value. Copies of a larger `priority` run first. Returns at once.
        """

    @abstractmethod
    def pull(self, key: Any, out: Any, priority: int = 0) -> Work:
        """Copy the stored value to each `out`, behind all earlier pushes. Returns at once."""

    @abstractmethod
    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> Work:
        """`push`, then `pull` to `out`, by default to the pushed arrays."""

    @abstractmethod
    def row_sparse_pull(self, key: Any, out: Any, row_ids: Any, priority: int = 0) -> Work:
        """Copy rows to each `out`: row i of `out` becomes row `row_ids[i]` of the value.

        `row_ids` are integers, for all outs of the one key; IndexError for a row out of range.
        """

    @abstractmethod
    def set_optimizer(self, given: Optimizer | str, **settings: Any) -> None:
        """Update by this optimizer from now on: an `Optimizer`, or a name with settings.

        All workers call it with the same arguments.
        """

    @abstractmethod
    def set_updater(self, updater: Callable[[Key, Array, Array], Any]) -> None:
        """Call `updater(key, sum, stored)` at each push; it changes `stored` in place, by pushes.

        The updater runs in the caller's thread, under the store's lock, so it must not call the
        store.
        """

    def set_gradient_compression(self, settings: dict[str, Any]) -> None:
        """Compress pushed values: `{"type": "1bit" or "2bit", "threshold": 0.5}`.

        Floats only: a push of another dtype is then a TypeError. Within a process each place in a
        key's list has a residual of its own. Between processes each worker's sum is compressed, and
        moves as one or two bits an element. Of an infinity or NaN the push has what these bits can
        say, and later pushes have nothing.
        """
        made = Compression.of(settings)
        with self._lock:
            self._compression = made

    @abstractmethod
    def barrier(self) -> None:
        """Block until this store's pushed ops are over; raises their failure.

        Between processes it also blocks until all workers are here.
        """

    @abstractmethod
    def save_optimizer_states(self, path: Any, dump_optimizer: bool = False) -> None:
        """Write the state of every key to a file. Blocks.

        `dump_optimizer` adds name and settings. OSError if the file cannot be written; an older
        file then stays whole. Between processes all workers call it, and rank 0 writes.
        """

    @abstractmethod
    def load_optimizer_states(self, path: Any) -> None:
        """Take the states of a file, and the optimizer if the file has it. Blocks for the file.

        ValueError for a damaged file, a file of another optimizer, and keys that do not fit. All
        workers call it.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the other workers. Closing twice is harmless; pushed ops continue."""

    @abstractmethod
    def _value(self, key: Key) -> Any:
        """An object with the shape and dtype of a key; KeyError before `init`."""

    def _known(self, given: list[tuple[Key, list[Array]]], what: str) -> Any:
        """`given`; raises for keys and arrays that do not fit the stored values."""
        for key, arrays in given:
            raise_unless_fit(key, arrays, self._value(key), what)
        return given

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def checked_rows(key: Key, row_ids: Any, outs: list[Array], shape: Any, dtype: Any) -> Any:
    """Row numbers, checked: they are in range for this shape and fit each out."""
    rows = np.asarray(row_ids)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise TypeError("row_ids are integers in a list or an array of one dimension")
    if not shape:
        raise ValueError(f"key {key!r} holds a scalar, which has no rows")
    if rows.size and not (rows.min() >= 0 and rows.max() < shape[0]):
        raise IndexError(f"key {key!r} has rows 0 to {shape[0] - 1}")
    wanted = (len(rows), *shape[1:])
    for each in outs:
        if each.shape != wanted or each.dtype != dtype:
            raise ValueError(f"the rows must be {dtype}{wanted}, not {each.shape}")
    return rows.astype(np.int64)


def raise_unless_floats(given: list[tuple[Key, list[Array]]]) -> None:
    """TypeError for a key whose values cannot be compressed."""
    for key, arrays in given:
        if arrays[0].dtype.kind != "f":
            raise TypeError(f"key {key!r} is {arrays[0].dtype}: only floats can be compressed")


def of_one_shape(given: list[tuple[Key, list[Array]]], known: Any) -> None:
    """ValueError for a `known` key, and if the arrays of a key differ in shape."""
    for key, arrays in given:
        if key in known:
            raise ValueError(f"key {key!r} has a value already: push to the key")
        for each in arrays[1:]:
            raise_unless_fit(key, [each], arrays[0], "value")
