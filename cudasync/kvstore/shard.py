"""Floor 5. The keys of one server: NumPy alone, no engine, no transport.

True after every call: a push of a worker is applied at most once, by its sequence number; a key's
version counts its pushes; a key's weight, state and version change together. A checkpoint is all
of it in one file, the table of sequence numbers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore import states
from cudasync.kvstore.optimizers import Optimizer, optimizer
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.kvstore.arguments import Key

    Value = np.ndarray[Any, Any]


class Shard:
    """Values, optimizer state and versions of some keys, and who has pushed what.

    Any number of threads may call. A worker numbers its pushes from 1 on, in order, and sends one
    again with its number until it is answered.
    """

    def __init__(self, given: Optimizer | str, **settings: Any) -> None:
        self._optimizer = optimizer(given, settings)
        self._rules = self._optimizer.rules(np)
        self._values: dict[Key, Value] = {}
        self._states: dict[Key, dict[str, Value]] = {}
        self._versions: dict[Key, int] = {}
        self._sequences: dict[int, int] = {}
        self._lock = Lock()

    def init(self, key: Key, value: Value) -> int:
        """Give a key its value unless it has one; the version, which is 0 at first."""
        with self._lock:
            if key not in self._values:
                made = np.array(value)
                fresh = {name: np.zeros_like(made) for name in self._optimizer.arrays}
                fresh.update({n: np.ones((), made.dtype) for n in self._optimizer.numbers})
                self._values[key], self._states[key], self._versions[key] = made, fresh, 0
            return self._versions[key]

    def push(self, worker: int, sequence: int, key: Key, gradient: Value) -> int:
        """Update by this gradient, unless that was done; the key's version.

        ValueError for a number that leaves some out, and for another shape; TypeError for another
        dtype. Nothing is changed by a push that raises.
        """
        with self._lock:
            value = self._value(key)
            last = self._sequences.get(worker, 0)
            if sequence > last + 1:
                raise ValueError(f"push {sequence} of worker {worker} came after {last}: resend")
            if gradient.shape != value.shape:
                raise ValueError(f"key {key!r} has shape {value.shape}, not {gradient.shape}")
            if gradient.dtype != value.dtype:
                raise TypeError(f"key {key!r} is {value.dtype}, not {gradient.dtype}")
            if sequence == last + 1:
                weight = value.copy()
                state = {name: each.copy() for name, each in self._states[key].items()}
                _Arithmetic(self._rules, self._optimizer, weight).update(gradient, state)
                self._values[key], self._states[key] = weight, state
                self._versions[key] += 1
                self._sequences[worker] = sequence
            return self._versions[key]

    def pull(self, key: Key) -> tuple[int, Value]:
        """The version and a copy of the value."""
        with self._lock:
            return self._versions.get(key, 0), self._value(key).copy()

    def last(self, worker: int) -> int:
        """The number of this worker's last push that was applied: it sends all later ones again."""
        with self._lock:
            return self._sequences.get(worker, 0)

    def checkpoint(self, path: Any) -> None:
        """Write everything to a file, atomically; OSError leaves an older file whole."""
        with self._lock:
            keys = list(self._values)
            about = {
                "optimizer": [self._optimizer.name, self._optimizer.settings],
                "keys": [[key, self._versions[key], list(self._states[key])] for key in keys],
                "sequences": sorted(self._sequences.items()),
            }
            # Replaced at each push and never changed, so the file is written without the lock.
            arrays = [a for k in keys for a in (self._values[k], *self._states[k].values())]
        states.save(path, about, arrays)

    @classmethod
    def restore(cls, path: Any) -> Shard:
        """The shard of a file; ValueError if it is damaged."""
        about, arrays = states.load(path)
        name, settings = about["optimizer"]
        made, given = cls(name, **settings), iter(arrays)
        for key, version, names in about["keys"]:
            made._values[key] = next(given)
            made._states[key] = {each: next(given) for each in names}
            made._versions[key] = version
        made._sequences = dict(about["sequences"])
        return made

    def _value(self, key: Key) -> Value:
        if key not in self._values:
            raise KeyError(f"key {key!r} has no value yet: init it first")
        return self._values[key]


class _Arithmetic:
    """What an optimizer's `update` computes with, on NumPy."""

    def __init__(
        self, rules: dict[str, Callable[..., Any]], chosen: Optimizer, weight: Value
    ) -> None:
        self._rules, self._optimizer, self._weight = rules, chosen, weight
        self.rate = np.asarray(chosen.learning_rate, weight.dtype)

    def update(self, gradient: Value, state: dict[str, Value]) -> None:
        self._optimizer.update(self, self._weight, gradient, state)

    def __call__(self, rule: str, out: Value | None, *arrays: Value) -> Any:
        made = self._rules[rule](*arrays)
        if out is not None:
            out[...] = made
        return made

    def total(self, x: Value) -> Any:
        return np.sum(x)
