"""Floor 5. The keys of one server: NumPy alone, no engine, no transport.

True after every call: a push of a worker is applied at most once, by its sequence number; a key's
version counts its pushes; a key's weight, state and version change together. A checkpoint has all
of this in one file, including the table of sequence numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore import array_file
from cudasync.kvstore.optimizers import Optimizer, optimizer
from cudasync.kvstore.servers.arithmetic import Arithmetic
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.kvstore.arguments import Key

    Value = np.ndarray[Any, Any]


@dataclass(slots=True)
class Held:
    """One key: its value, its optimizer's state, and its number of pushes by worker."""

    value: Value
    state: dict[str, Value]
    version: int = 0
    counts: dict[Any, int] = field(default_factory=dict)
    # A checkpoint is reading the arrays, so the next push replaces them by copies.
    is_lent: bool = False


class Shard:
    """Values, optimizer state and versions of some keys, and the pushes of each worker.

    Any number of threads may call. A worker numbers its pushes from 1 on, rising, and repeats a
    push with its number until it is answered.
    """

    def __init__(self, given: Optimizer | str | None = None, **settings: Any) -> None:
        self._arithmetic: Arithmetic | None = None
        self._keys: dict[Key, Held] = {}
        self._sequences: dict[Any, int] = {}
        self._members: set[Any] = set()
        # The last barrier that each worker has reached.
        self.arrivals: dict[Any, int] = {}
        # Held while anything changes. A caller that writes a change down holds it, too.
        self.lock = Lock()
        if given is not None:
            self.set_optimizer(given, settings)

    def set_optimizer(self, given: Optimizer | str, settings: dict[str, Any]) -> bool:
        """Update by this optimizer from now on; states begin anew, unless it is the same.

        True if the optimizer has changed.
        """
        made = optimizer(given, settings)
        with self.lock:
            before = self.optimizer
            if before and (before.name, before.settings) == (made.name, made.settings):
                return False
            self._arithmetic = Arithmetic(made)
            for held in self._keys.values():
                held.state = self._arithmetic.fresh(held.value)
            return True

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer; None if it is not set."""
        return None if self._arithmetic is None else self._arithmetic.optimizer

    def init(self, key: Key, value: Value) -> bool:
        """Give a key its value unless it already has a value; True if it had none."""
        with self.lock:
            if key in self._keys:
                return False
            made = np.array(value, order="C")
            state = {} if self._arithmetic is None else self._arithmetic.fresh(made)
            self._keys[key] = Held(made, state)
            return True

    def push(
        self,
        worker: Any,
        sequence: int,
        key: Key,
        gradient: Value,
        note: Callable[[], None] | None = None,
    ) -> int:
        """Update by this gradient, unless it was applied before; returns the key's version.

        `note` is called before anything changes, and may raise. ValueError without an optimizer
        and for another shape; TypeError for another dtype. A push that raises changes nothing.
        """
        with self.lock:
            held = self.held(key)
            if gradient.shape != held.value.shape:
                raise ValueError(f"key {key!r} has shape {held.value.shape}, not {gradient.shape}")
            if gradient.dtype != held.value.dtype:
                raise TypeError(f"key {key!r} is {held.value.dtype}, not {gradient.dtype}")
            if self._arithmetic is None:
                raise ValueError("the servers have no optimizer: call set_optimizer first")
            if sequence > self._sequences.get(worker, 0):
                if held.is_lent:
                    held.value = held.value.copy()
                    held.state = {name: each.copy() for name, each in held.state.items()}
                    held.is_lent = False
                if note is not None:
                    note()
                self._arithmetic.update(held.value, gradient, held.state)
                held.version += 1
                held.counts[worker] = held.counts.get(worker, 0) + 1
                self._sequences[worker] = sequence
            return held.version

    def pull(self, key: Key) -> tuple[int, Value]:
        """The version and a copy of the value."""
        with self.lock:
            held = self.held(key)
            return held.version, held.value.copy()

    def held(self, key: Key) -> Held:
        """The key itself; the caller must prevent pushes meanwhile. KeyError for an unknown key."""
        if key not in self._keys:
            raise KeyError(f"key {key!r} has no value yet: init the key first")
        return self._keys[key]

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def last(self, worker: Any) -> int:
        """The number of this worker's last applied push; 0 for none."""
        with self.lock:
            return self._sequences.get(worker, 0)

    def join(self, worker: Any) -> None:
        """Count this worker among the workers that a bound on staleness waits for.

        A late worker starts at the count of the slowest other worker.
        """
        with self.lock:
            if worker not in self._members:
                for held in self._keys.values():
                    others = [held.counts.get(each, 0) for each in self._members]
                    held.counts[worker] = min(others, default=0)
                self._members.add(worker)

    def leave(self, worker: Any) -> int:
        """Stop waiting for this worker; returns the number of workers that are left."""
        with self.lock:
            self._members.discard(worker)
            for held in self._keys.values():
                held.counts.pop(worker, None)
            return len(self._members)

    def arrive(self, worker: Any, number: int) -> int:
        """Note that a worker has reached this barrier; returns how many workers have."""
        with self.lock:
            self.arrivals[worker] = max(number, self.arrivals.get(worker, 0))
            return sum(each >= number for each in self.arrivals.values())

    def forget_members(self) -> None:
        """Remove all workers; a worker that goes on joins again."""
        with self.lock:
            for each in list(self._members):
                self.leave(each)

    def behind(self, worker: Any, key: Key, bound: int) -> list[Any]:
        """The workers that are more than `bound` pushes of this key behind `worker`."""
        with self.lock:
            counts = self.held(key).counts
            least = counts.get(worker, 0) - bound
            return [each for each in self._members if counts.get(each, 0) < least]

    def set_state(self, key: Key, state: dict[str, Value]) -> None:
        """Replace the optimizer's state of a key; ValueError if the state does not fit."""
        with self.lock:
            held = self.held(key)
            for name, each in held.state.items():
                if name not in state or state[name].shape != each.shape:
                    raise ValueError(
                        f"the state of key {key!r} has another shape or dtype than the stored value"
                    )
            held.state = {
                name: np.array(state[name], each.dtype) for name, each in held.state.items()
            }
            held.is_lent = False

    def checkpoint(self, path: Any, about: Callable[[], dict[str, Any]] = dict) -> None:
        """Write everything to a file, atomically; OSError leaves an older file whole.

        `about` is called while no push is under way, and its result goes into the file.
        """
        with self.lock:
            keys = list(self._keys.items())
            chosen = self.optimizer
            told = {
                **about(),
                "optimizer": None if chosen is None else [chosen.name, chosen.settings],
                "keys": [[k, h.version, list(h.state), list(h.counts.items())] for k, h in keys],
                "sequences": list(self._sequences.items()),
                "members": list(self._members),
                "arrivals": list(self.arrivals.items()),
            }
            arrays = []
            for _, held in keys:
                held.is_lent = True
                arrays += [held.value, *held.state.values()]
        # Without the lock: pushes in the meantime make arrays of their own.
        array_file.save(path, told, arrays)

    @classmethod
    def restore(cls, path: Any) -> tuple[Shard, dict[str, Any]]:
        """The shard of a file, and the file's description; ValueError if it is damaged."""
        about, arrays = array_file.load(path)
        made, given = cls(), iter(arrays)
        if about["optimizer"] is not None:
            made.set_optimizer(*about["optimizer"])
        for key, version, names, counts in about["keys"]:
            value = next(given)
            made._keys[key] = Held(value, {n: next(given) for n in names}, version, dict(counts))
        made._sequences = dict(about["sequences"])
        made._members = set(about["members"])
        made.arrivals = dict(about["arrivals"])
        return made, about
