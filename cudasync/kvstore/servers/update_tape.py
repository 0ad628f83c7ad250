"""Floor 5. The update of an elementwise optimizer as a tape: NumPy calls into memory that is kept.

The optimizer's `update` runs once on recorded arrays, and the tape notes each NumPy call. A run
makes the same calls on blocks of the real arrays. So it has the same bits, and needs no new memory
for results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.kvstore.optimizers import Optimizer

    Value = np.ndarray[Any, Any]
    # A function, and the places of its operands and of its result.
    Call = tuple[Callable[..., Any], tuple[int, ...]]

# Elements in a block: the few arrays of a call fit in a core's own cache.
BLOCK = 1 << 15


class Tape:
    """The calls that update weights of one dtype; one thread at a time runs them.

    A place is an index of the given arrays, the constants and the results. Numbers, which are
    0-dimensional, are computed once, before the blocks.
    """

    def __init__(self, optimizer: Optimizer, dtype: np.dtype[Any]) -> None:
        # What is at each place: a value in a run, and an array that has its dtype.
        self._values: list[Any] = []
        self._samples: list[Any] = []
        self._number_calls: list[Call] = []
        self._block_calls: list[Call] = []
        self._rules = optimizer.rules(np)
        weight, gradient = (self._given(np.ones(1, dtype)) for _ in range(2))
        self.rate = self._given(np.ones((), dtype))
        arrays = {name: self._given(np.ones(1, dtype)) for name in optimizer.arrays}
        numbers = {name: self._given(np.ones((), dtype)) for name in optimizer.numbers}
        self._given_places = [each.place for each in (weight, gradient, *arrays.values())]
        self._array_names = list(arrays)
        self._old_numbers = {name: each.place for name, each in numbers.items()}
        with np.errstate(all="ignore"):
            optimizer.update(self, weight, gradient, {**arrays, **numbers})
        # A number gets another place with each new value.
        self._new_numbers = {name: each.place for name, each in numbers.items()}
        self._results = self._allocated()

    def run(self, weight: Value, gradient: Value, state: dict[str, Value], rate: Value) -> None:
        """Change `weight`, which is flat, and `state` in place; never raises half-way."""
        values = self._values
        values[self.rate.place] = rate
        for name, at in self._old_numbers.items():
            values[at] = state[name]
        _make(self._number_calls, values)
        flat = [weight, gradient, *(state[name].reshape(-1) for name in self._array_names)]
        for start in range(0, weight.size, BLOCK):
            part = slice(start, start + BLOCK)
            for at, each in zip(self._given_places, flat, strict=True):
                values[at] = each[part]
            size = min(BLOCK, weight.size - start)
            for at, each in self._results:
                values[at] = each if size == BLOCK else each[:size]
            _make(self._block_calls, values)
        for name, at in self._new_numbers.items():
            state[name][...] = values[at]
        for at in self._given_places:
            values[at] = None

    def __call__(self, rule: str, out: Recorded | None, *arrays: Recorded) -> Recorded:
        """Note the calls of a rule; the last call writes to `out`, if given."""
        before = len(self._values)
        made: Recorded = self._rules[rule](*arrays)
        if out is None:
            return made
        given, wanted = self._samples[made.place], self._samples[out.place]
        if not wanted.ndim:
            out.place = self._cast(made.place, wanted.dtype)
            return out
        if made.place >= before and given.dtype == wanted.dtype:
            # The last call made it, and nothing else has used it.
            function, places = self._block_calls[-1]
            self._block_calls[-1] = function, (*places[:-1], out.place)
        else:
            self._block_calls.append((_assign, (made.place, out.place)))
        return out

    def note(self, function: Callable[..., Any], operands: Iterable[Any]) -> Recorded:
        """Note a call; its operands are recorded arrays, or constants."""
        places = [
            each.place if isinstance(each, Recorded) else self._new(each, each) for each in operands
        ]
        sample = np.asarray(function(*[self._samples[at] for at in places]))
        made = self._new(None if sample.ndim else np.empty_like(sample), sample)
        calls = self._block_calls if sample.ndim else self._number_calls
        calls.append((function, (*places, made)))
        return Recorded(self, made)

    def _given(self, sample: Value) -> Recorded:
        return Recorded(self, self._new(None, sample))

    def _new(self, value: Any, sample: Any) -> int:
        self._values.append(value)
        self._samples.append(sample)
        return len(self._values) - 1

    def _cast(self, number: int, dtype: np.dtype[Any]) -> int:
        """The place of a number with this dtype."""
        if self._samples[number].dtype == dtype:
            return number
        made = self._new(np.empty((), dtype), np.empty((), dtype))
        self._number_calls.append((_assign, (number, made)))
        return made

    def _allocated(self) -> list[tuple[int, Value]]:
        """Memory for the result of each call in a block; a result is dead after its last use."""
        last = {at: n for n, (_, places) in enumerate(self._block_calls) for at in places}
        idle: list[Value] = []
        found: dict[int, Value] = {}
        for number, (_, (*operands, result)) in enumerate(self._block_calls):
            # NumPy computes in place if the result has the memory of an operand.
            idle += [found[at] for at in {*operands} & found.keys() if last[at] == number]
            if result in self._given_places:
                continue
            dtype = self._samples[result].dtype
            fit = next((n for n, each in enumerate(idle) if each.dtype == dtype), None)
            found[result] = np.empty(BLOCK, dtype) if fit is None else idle.pop(fit)
        return list(found.items())


class Recorded(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of an update that a tape records; NumPy passes its calls to the tape."""

    def __init__(self, tape: Tape, place: int) -> None:
        self._tape = tape
        self.place = place

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Recorded:
        if method != "__call__" or more:
            raise TypeError(f"a tape cannot record {ufunc.__name__}.{method} with {more}")
        return self._tape.note(ufunc, inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Recorded:
        if func is not np.clip or kwargs:
            raise TypeError(f"a tape cannot record {func.__name__} with {kwargs}")
        return self._tape.note(func, args)


def _make(calls: list[Call], values: list[Any]) -> None:
    for function, places in calls:
        function(*[values[at] for at in places])


def _assign(given: Value, out: Value) -> None:
    np.copyto(out, given, casting="unsafe")
