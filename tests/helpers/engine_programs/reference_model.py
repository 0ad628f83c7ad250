"""The serial meaning of a program, in NumPy alone, with which the engines are compared.

The model shares no code with the engines: of the library it has only NumPy's version of the random
numbers. It remembers failures per element: the op to blame for the element's content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from helpers.engine_programs.steps import (
    LENGTH,
    UNNUMBERED,
    Add,
    Batch,
    Clear,
    ClearErrors,
    Copy,
    Direct,
    Draw,
    Exhaust,
    Fail,
    Fetch,
    Hold,
    Inner,
    Join,
    Mix,
    Nest,
    Note,
    Place,
    Program,
    Read,
    Renew,
    Set,
    Step,
    Token,
    Total,
    View,
    WaitAll,
    Wild,
    needed,
)

from cudasync.array.functions.philox import below

# Random numbers are below this, by this seed.
MOST, SEED = 1000, 11


def initial(space: str, index: int) -> np.ndarray:
    """The content of an array before the first step."""
    return np.arange(LENGTH, dtype=np.int32) + (1000 if space == "h" else 100) * index


def joined(target: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The result of `Join`. Sums are kept as arrays, which wrap around without a warning."""
    sums = [each.sum(dtype=np.int32, keepdims=True) for each in (first, second)]
    return 31 * target + 7 * sums[0] + sums[1]


def failed(name: str) -> tuple[str, str]:
    """The result of a step that failed because of op `name`."""
    return ("failed", name)


@dataclass
class Outcome:
    """Everything that a program visibly did."""

    device: list[list[int]] = field(default_factory=list)
    host: list[list[int]] = field(default_factory=list)
    logs: list[list[str]] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    # By id: the value returned or read, or `failed(...)`.
    results: dict[str, object] = field(default_factory=dict)
    # How often each countable function ran.
    ran: dict[str, int] = field(default_factory=dict)
    # The error of the last waitall().
    first: object = None
    # By array and token: the errors of waits for it, once the program has ended.
    blamed: dict[str, set[object]] = field(default_factory=dict)


class Model:
    """Runs steps one after the other."""

    def __init__(self, program: Program) -> None:
        self.pushes = program.by_id()
        self.is_ordered = program.is_ordered
        self.memory = {("d", i): initial("d", i) for i in range(len(program.devices))}
        self.memory |= {("h", i): initial("h", i) for i in range(program.hosts)}
        self.blame: dict[tuple[str, int], list[str | None]] = {
            array: [None] * LENGTH for array in self.memory
        }
        self.token_blame: list[str | None] = [None] * program.tokens
        self.logs: list[list[str]] = [[] for _ in range(program.tokens)]
        self.versions = [0] * program.tokens
        # How many random numbers were drawn.
        self.drawn = 0
        self.results: dict[str, object] = {}
        self.ran: dict[str, int] = {}
        # The ops that failed by themselves, in the order of their pushes.
        self.failures: list[str] = []

    def run(self, order: Sequence[str]) -> Outcome:
        """The outcome of these steps in this order."""
        for id_ in order:
            step = self.pushes[id_].step
            for place in step.writes:
                if isinstance(place, Token):
                    self.versions[place.index] += 1
            result = self.do(id_, step)
            # The step's place in the order is unknown.
            if self.is_ordered or not isinstance(step, UNNUMBERED):
                self.results[id_] = result
        for id_ in reversed(order):
            # Pushed ops come later in the order, but the step's result includes their results.
            step = self.pushes[id_].step
            if isinstance(step, Nest) and step.token is None:
                self.results[id_] = [self.results.get(f"{id_}.{i}") for i in range(len(step.inner))]
        device = [a.tolist() for (space, _), a in self.memory.items() if space == "d"]
        host = [a.tolist() for (space, _), a in self.memory.items() if space == "h"]
        outcome = Outcome(device, host, self.logs, self.versions, self.results, self.ran)
        outcome.first, outcome.blamed = self._first(), self._blamed()
        return outcome

    def do(self, id_: str, step: Step) -> object:
        name = f"step {id_}"
        if isinstance(step, Batch):
            return self._do_batch(id_, step)
        blames = {blamed for place in needed(step) for blamed in self._blames(place) if blamed}
        # The first failure, whichever place was named first.
        blamed = min(blames, key=self.failures.index, default=None)
        if blamed is None and isinstance(step, (Fail, Exhaust, Wild)):
            self._act(id_, step)
            self.failures.append(name)
            blamed = name
        if blamed is not None:
            self._mark(step.writes, blamed)
            return failed(blamed)
        result = self._act(id_, step)
        self._mark(step.writes, None)
        return result

    def _do_batch(self, id_: str, batch: Batch) -> object:
        """Run all steps, or none if a step needs the result of an earlier failure."""
        blames = set(self._blames_before(batch))
        blamed = min(blames, key=self.failures.index, default=None)
        results = []
        if blamed is None:
            for k, step in enumerate(batch.steps):
                results.append(self._act(f"{id_}.{k}", step))
                if isinstance(step, (Fail, Exhaust)):
                    blamed = f"step {id_}, step {k} (counted)"
                    self.failures.append(blamed)
                    break
        self._mark(batch.writes, blamed)
        return results if blamed is None else failed(blamed)

    def _blames_before(self, batch: Batch) -> Iterable[str]:
        """The failures behind the batch's inputs, except for inputs that an earlier step wrote."""
        written: set[object] = set()
        for step in batch.steps:
            for place in needed(step):
                for part, blamed in zip(_parts(place), self._blames(place), strict=True):
                    if blamed and part not in written:
                        yield blamed
            written.update(part for place in step.writes for part in _parts(place))

    def _act(self, id_: str, step: Step) -> object:
        if not isinstance(step, (*UNNUMBERED, Add, Total, Inner, Draw, Mix, Set, Copy, Fetch)) or (
            isinstance(step, (Mix, Set)) and step.target.space == "h"
        ):
            self.ran[id_] = 1
        match step:
            case Mix(target, source, factor):
                old, other = self.at(target), self.at(source)
                old[:] = 31 * old + factor * other + np.arange(len(old), dtype=np.int32)
            case Add(target, source):
                self.at(target)[:] = self.at(target) + self.at(source)
            case Total(target, source):
                self.at(target)[:] += self.at(source).sum(dtype=np.int32, keepdims=True)
            case Inner(target, first, second):
                product = np.dot(self.at(first), self.at(second))
                self.at(target)[:] += np.array([product], np.int32)
            case Join(target, first, second):
                self.at(target)[:] = joined(self.at(target), self.at(first), self.at(second))
            case Set(target, value) | Hold(target, value):
                self.at(target)[:] = value + np.arange(len(target.elements), dtype=np.int32)
            case Draw(target):
                index = np.arange(len(self.at(target)), dtype=np.uint64)
                self.at(target)[:] = below(SEED, np.uint64(self.drawn), MOST, index)
                self.drawn += len(index)
            case Copy(target, source) | Direct(target, source):
                self.at(target)[:] = self.at(source)
            case Clear(target) | Fail(target, _, True):
                self.at(target)[:] = 0
            case Note(token, is_write):
                if is_write:
                    self.logs[token.index].append(id_)
                return tuple(self.logs[token.index])
            case Fetch(source) | Read(source):
                return self.at(source).tolist()
            case WaitAll():
                return self._first()
            case ClearErrors():
                self._mark([View(*array, 0, None) for array in self.blame], None)
                self.token_blame = [None] * len(self.token_blame)
                self.failures.clear()
            case Renew(index, value):
                self.memory["d", index] = initial("d", index) + np.int32(value)
                self.blame["d", index] = [None] * LENGTH
        return None

    def at(self, view: View) -> np.ndarray:
        return self.memory[view.array][view.slice]

    def _first(self) -> object:
        return failed(self.failures[0]) if self.failures else None

    def _blamed(self) -> dict[str, set[object]]:
        places: dict[str, Place] = {
            f"d{i}": View("d", i, 0, None) for space, i in self.memory if space == "d"
        }
        places |= {f"t{i}": Token(i) for i in range(len(self.token_blame))}
        found: dict[str, set[object]] = {}
        for name, place in places.items():
            blames = {blamed for blamed in self._blames(place) if blamed}
            first = min(blames, key=self.failures.index, default=None)
            found[name] = {failed(first) if first else None}
        return found

    def _blames(self, place: Place) -> Iterable[str | None]:
        if isinstance(place, Token):
            return [self.token_blame[place.index]]
        return self.blame[place.array][place.span]

    def _mark(self, places: Iterable[Place], blamed: str | None) -> None:
        for place in places:
            if isinstance(place, Token):
                self.token_blame[place.index] = blamed
            else:
                span = place.span
                self.blame[place.array][span] = [blamed] * (span.stop - span.start)


def _parts(place: Place) -> list[object]:
    """The parts of a place that carry blame separately: elements, or the token."""
    if isinstance(place, Token):
        return [place]
    return [(place.array, element) for element in range(place.span.start, place.span.stop)]
