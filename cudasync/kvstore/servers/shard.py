"""Floor 5. The keys of one server: NumPy alone, no engine, no transport.

True after every call: a push of a worker is applied at most once, by its sequence number; a key's
version counts its pushes; a key's weight, state and version change together. A checkpoint has all
of this in one file, including the table of sequence numbers.

A change may be written down: `note` is called once nothing can fail any more, and before anything
has changed. If it raises, nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cudasync.kvstore import array_file
from cudasync.kvstore.optimizers import Optimizer, optimizer
from cudasync.kvstore.servers.arithmetic import Arithmetic
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.kvstore.arguments import Key

    Value = np.ndarray[Any, Any]
    Note: TypeAlias = Callable[[], None]


def _nothing() -> None:
    """The note of a change that nobody writes down."""


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
        # The workers that barriers and a bound on staleness wait for, with their ranks.
        self._members: dict[Any, int] = {}
        # The last barrier that each of them has reached, and the last that all have passed.
        self._arrivals: dict[Any, int] = {}
        self._passed = 0
        # By barrier and worker: what workers told the others there.
        self._told: dict[int, dict[Any, str]] = {}
        # The name of the data, which all servers of a job share; and whether all of them have it.
        self.lineage, self.is_whole = "", False
        # Held while anything changes. A caller that writes a change down holds it, too.
        self.lock = Lock()
        if given is not None:
            self.set_optimizer(given, settings)

    def set_optimizer(
        self, given: Optimizer | str, settings: dict[str, Any], note: Note = _nothing
    ) -> bool:
        """Update by this optimizer from now on; states begin anew, unless it is the same.

        True if the optimizer has changed.
        """
        made = optimizer(given, settings)
        with self.lock:
            before = self.optimizer
            if before and (before.name, before.settings) == (made.name, made.settings):
                return False
            arithmetic = Arithmetic(made)
            states = {key: arithmetic.fresh(held.value) for key, held in self._keys.items()}
            note()
            self._arithmetic = arithmetic
            for key, state in states.items():
                self._keys[key].state = state
            return True

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer; None if it is not set."""
        return None if self._arithmetic is None else self._arithmetic.optimizer

    def init(self, key: Key, value: Value, note: Note = _nothing) -> bool:
        """Give a key its value unless it already has a value; True if it had none."""
        with self.lock:
            if key in self._keys:
                return False
            made = np.array(value, order="C")
            state = {} if self._arithmetic is None else self._arithmetic.fresh(made)
            note()
            self._keys[key] = Held(made, state)
            return True

    def push(
        self, worker: Any, sequence: int, key: Key, gradient: Value, note: Note = _nothing
    ) -> int:
        """Update by this gradient, unless it was applied before; returns the key's version.

        ValueError without an optimizer and for another shape; TypeError for another dtype, and for
        a dtype that the optimizer cannot update. A push that raises changes nothing.
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
                update = self._arithmetic.prepared(held.value, gradient, held.state)
                note()
                update()
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

    def join(self, worker: Any, rank: int, workers: int, note: Note = _nothing) -> int:
        """Count this worker among those that barriers and a bound on staleness wait for.

        It replaces a worker of its rank, and workers of ranks that `workers` workers do not have.
        It starts at the count of the slowest other worker, and behind the last barrier that all
        have passed, whose number is returned.
        """
        with self.lock:
            if worker not in self._members:
                note()
                for each, other in list(self._members.items()):
                    if other == rank or other >= workers:
                        self.leave(each)
                for held in self._keys.values():
                    others = [held.counts.get(each, 0) for each in self._members]
                    held.counts[worker] = min(others, default=0)
                self._members[worker] = rank
            return self._passed

    def leave(self, worker: Any) -> int:
        """Stop waiting for this worker; returns the number of workers that are left."""
        with self.lock:
            self._members.pop(worker, None)
            self._arrivals.pop(worker, None)
            for held in self._keys.values():
                held.counts.pop(worker, None)
            return len(self._members)

    def arrive(
        self, worker: Any, number: int, workers: int, told: str = "", note: Note = _nothing
    ) -> tuple[bool, list[str]]:
        """Note that a worker has reached a barrier; whether all `workers` have, and what was told.

        ValueError for a worker that left, or was replaced: the others do not wait for it.
        """
        with self.lock:
            if worker not in self._members:
                raise ValueError(
                    f"worker {worker} has left, or another store joined with its rank: give each "
                    f"store a rank of its own"
                )
            known = self._told.get(number, {})
            if self._arrivals.get(worker, 0) < number or known.get(worker, "") != told:
                note()
                self._arrivals[worker] = max(number, self._arrivals.get(worker, 0))
                if told or worker in known:
                    self._told.setdefault(number, {})[worker] = told
                if sum(self._arrivals.get(each, 0) >= number for each in self._members) >= workers:
                    self._passed = max(self._passed, number)
                    # A worker that is at a later barrier has heard of the earlier ones.
                    self._told = {n: of for n, of in self._told.items() if n >= self._passed}
            return number <= self._passed, [of for of in self._told.get(number, {}).values() if of]

    def begin(self) -> None:
        """Begin a life: the workers of the life before are gone, and nobody waits for them."""
        with self.lock:
            for each in list(self._members):
                self.leave(each)
            self._told.clear()

    def take_workers_of(self, other: Shard) -> None:
        """Wait for the workers that another shard waits for, where that one waits for them."""
        with self.lock:
            self.begin()
            self._members, self._arrivals = dict(other._members), dict(other._arrivals)
            self._passed, self._told = other._passed, dict(other._told)

    def behind(self, worker: Any, key: Key, bound: int) -> list[Any]:
        """The workers that are more than `bound` pushes of this key behind `worker`."""
        with self.lock:
            counts = self.held(key).counts
            least = counts.get(worker, 0) - bound
            return [each for each in self._members if counts.get(each, 0) < least]

    def set_state(self, key: Key, state: dict[str, Value], note: Note = _nothing) -> None:
        """Replace the optimizer's state of a key; ValueError if the state does not fit."""
        with self.lock:
            held = self.held(key)
            for name, each in held.state.items():
                if name not in state or state[name].shape != each.shape:
                    raise ValueError(
                        f"the state of key {key!r} has another shape or dtype than the stored value"
                    )
            made = {name: np.array(state[name], each.dtype) for name, each in held.state.items()}
            note()
            held.state = made
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
                "members": list(self._members.items()),
                "arrivals": list(self._arrivals.items()),
                "passed": self._passed,
                "told": [[number, list(of.items())] for number, of in self._told.items()],
                "lineage": [self.lineage, self.is_whole],
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
        made._members, made._arrivals = dict(about["members"]), dict(about["arrivals"])
        made._passed = about["passed"]
        made._told = {number: dict(of) for number, of in about["told"]}
        made.lineage, made.is_whole = about["lineage"]
        return made, about
