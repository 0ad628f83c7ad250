"""Floor 4, random. A generator: a key, and a counter; each call takes a part of the counter.

A call takes its part when it is made. So the order of calls alone decides the numbers, not the
device or the schedule of the ops.

The counter is on the host until a graph draws. A recording cannot know how often its draws run, so
they count in memory, as nodes of the graph: see `stored_state`. After a launch the counter is in
that memory. Later calls draw from it, and only reading `state` waits for it.
"""

from __future__ import annotations

import math
import operator
import os
from typing import TYPE_CHECKING, Any

from cudasync.array.dtypes.limits import iinfo
from cudasync.array.dtypes.supported import FLOAT32, FLOAT64, INT64, INTEGRAL, UINT64, supported
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.guards.tracing import WATCHES, is_constant_here
from cudasync.errors import RecordingError
from cudasync.locks import Lock
from cudasync.random import expressions
from cudasync.random.stored_state import StoredState, is_recording
from cudasync.xp.initial_contents import to_overwrite
from cudasync.xp.parameter_checks import as_shape, place
from cudasync.xp.sorting import argsort

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike

    from cudasync.array.array import Array
    from cudasync.array.dtypes.supported import DType
    from cudasync.array.elementwise.operation import Operation

_END = 1 << 64


class Generator:
    """Random numbers by Philox4x32-10, equal on every device and the CPU.

    `seed` is an integer of 64 bits; without one the system chooses it. Every method is a push and
    returns at once. `shape` is the shape of the result. `device` is None for the current device, an
    ordinal, a `cs.Device` or "cpu". Any number of threads may share a generator, but the threads
    must order their calls themselves.

    In a recording a call draws at each launch, in each round of a loop, and in each call of a graph
    function, what it would draw without a graph. A generator that is made there, with a seed,
    begins anew in each launch. A function of `cs.elementwise` cannot draw: TypeError. A launch and
    a draw behind one hold the generator while they push. So the function of an op that another
    thread's push may wait for must not draw from it.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is None and is_recording():
            raise RecordingError(
                "a generator without a seed begins differently at each launch, and a recording "
                "fixes its seed: give a seed, or make it before the recording"
            )
        given = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self._seed = _of_64_bits(given, "a seed")
        self._counter = 0
        # Held by a launch, too, until all its parts are pushed.
        self._lock = Lock()
        # The memory in which graphs count, once a recording has drawn; and whether it counts now.
        self._stored: StoredState | None = None
        if is_recording():
            self._store(self._seed, 0)

    @property
    def state(self) -> dict[str, int]:
        """Seed and counter, which decide all later numbers. Setting it goes on from there.

        Reading waits for the graphs that drew. Setting is recorded in a recording: each launch sets
        it. Reading raises RecordingError there, and OpError if what should have counted has failed.
        """
        if is_recording():
            raise RecordingError(
                "the state of a generator cannot be read while recording, when nothing has been "
                "drawn yet: read it after exe.launch()"
            )
        with self._lock:
            stored = self._stored
            if stored is not None and stored.is_current:
                self._seed, self._counter = stored.fetched()
            return {"seed": self._seed, "counter": self._counter}

    @state.setter
    def state(self, state: dict[str, int]) -> None:
        if set(state) != {"seed", "counter"}:
            raise ValueError(
                f"a state is a dict with the keys seed and counter, not {sorted(state)}"
            )
        seed = _of_64_bits(state["seed"], "a seed")
        counter = _of_64_bits(state["counter"], "a counter")
        if is_recording():
            self._store(seed, counter)
            return
        with self._lock:
            self._seed, self._counter = seed, counter
            if self._stored is not None:
                self._stored.is_current = False

    def _store(self, seed: int, counter: int) -> None:
        """Record that the state becomes this."""
        with self._lock:
            self._stored_on(place(None)).record(seed, counter)

    def _stored_on(self, device: Any) -> StoredState:
        """The memory in which graphs count, which stays where it was first needed."""
        if self._stored is None or self._stored.is_lost:
            self._stored = StoredState(self._lock, device, self._on_host)
        return self._stored

    def _on_host(self) -> tuple[int, int]:
        return self._seed, self._counter

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value: the copy goes on with the same numbers."""
        return _restored, (self.state,)

    def random(self, shape: Any = (), *, dtype: DTypeLike = FLOAT32, device: Any = None) -> Array:
        """Numbers in [0, 1): multiples of 2^-24 (float32) or 2^-53 (float64), all equally
        likely."""
        return self.uniform(0.0, 1.0, shape, dtype=dtype, device=device)

    def uniform(
        self,
        low: float | tuple[int, ...] = 0.0,
        high: float = 1.0,
        shape: Any = (),
        *,
        dtype: DTypeLike = FLOAT32,
        device: Any = None,
    ) -> Array:
        """Numbers from `low` to `high`: `low + (high - low) * random()`, rounded, so `high` itself
        may occur. A shape may stand first, in the place of `low`: `uniform((3, 4))`.

        ValueError unless both are finite and low <= high.
        """
        if isinstance(low, (tuple, list)):
            low, shape = 0.0, _first(low, shape)
        kind, first, last = _float(dtype), float(low), float(high)
        if not (first <= last and math.isfinite(last - first)):
            raise ValueError(f"uniform takes finite low <= high, not {low} and {high}")
        return self._made(expressions.uniform, (first, last - first), shape, kind, device)

    def normal(
        self,
        loc: float | tuple[int, ...] = 0.0,
        scale: float = 1.0,
        shape: Any = (),
        *,
        dtype: DTypeLike = FLOAT32,
        device: Any = None,
    ) -> Array:
        """Normal numbers of mean `loc` and standard deviation `scale`, by the quantile of one
        uniform number each. A shape may stand first, in the place of `loc`: `normal((3, 4))`.

        ValueError for a scale below 0, and for values that are not finite.
        """
        if isinstance(loc, (tuple, list)):
            loc, shape = 0.0, _first(loc, shape)
        kind, mean, deviation = _float(dtype), float(loc), float(scale)
        if not (deviation >= 0 and math.isfinite(mean) and math.isfinite(deviation)):
            raise ValueError(f"normal takes a finite loc and scale >= 0, not {loc} and {scale}")
        return self._made(expressions.normal, (mean, deviation), shape, kind, device)

    def integers(
        self,
        low: int,
        high: int | None = None,
        shape: Any = (),
        *,
        dtype: DTypeLike = INT64,
        endpoint: bool = False,
        device: Any = None,
    ) -> Array:
        """Integers from `low` up to `high`, which is excluded unless `endpoint`; from 0 up to `low`
        with one bound. All are exactly equally likely: a draw that would favour some is repeated.

        ValueError if there is no such integer, or if the dtype does not hold them.
        """
        kind = supported(dtype)
        if kind.kind not in INTEGRAL:
            raise TypeError(f"integers takes an integer dtype, not {kind}: use uniform for floats")
        first, end = operator.index(low), None if high is None else operator.index(high)
        if end is None:
            first, end = 0, first
        last = end if endpoint else end - 1
        limits = iinfo(kind)
        if first > last:
            raise ValueError(f"there is no integer from {first} to {last}")
        if first < limits.min or last > limits.max:
            raise ValueError(
                f"{kind} cannot represent the integers from {first} to {last}: give a larger dtype"
            )
        numbers = (last - first + 1) % _END, first % _END
        return self._made(expressions.integers, numbers, shape, kind, device)

    def permutation(self, count: int, *, device: Any = None) -> Array:
        """The integers from 0 up to `count` in random order, as int64.

        They are sorted by 64 random bits each. Two integers have the same bits with probability
        below `count**2 / 2**65`; the smaller then comes first.
        """
        keys = self._made(expressions.bits, (), operator.index(count), UINT64, device)
        made: Array = argsort(keys)
        return made

    def _made(
        self,
        operation: Callable[..., Operation],
        numbers: tuple[float, ...],
        shape: Any,
        dtype: DType,
        device: Any,
    ) -> Array:
        if WATCHES and is_constant_here():
            raise TypeError(
                "an elementwise function is called once, so a number that it draws would stay the "
                "same: draw before the call, and pass the array"
            )
        made = to_overwrite(as_shape(shape), dtype, place(device))
        if made.size:
            # One axis, for any shape: the index counts the elements in C order.
            target, frame = made.reshape(made.size), user_frame()
            with self._lock:
                stored = self._stored
                if is_recording():
                    stored = self._stored_on(made.device)
                if stored is not None and (stored.is_current or is_recording()):
                    stored.draw(operation(dtype, True), numbers, target, frame)
                    return made
                seed, start = self._seed, self._counter
                self._counter = (start + made.size) % _END
            operation(dtype).into((seed, start, *numbers), target, frame)
        return made


def _first(shape: Any, other: Any) -> Any:
    """A shape that stands first; TypeError if there is another shape."""
    if other != ():
        raise TypeError(f"two shapes are given, {shape} and {other}: give one")
    return shape


def _float(dtype: DTypeLike) -> DType:
    kind = supported(dtype)
    if kind not in (FLOAT32, FLOAT64):
        raise TypeError(
            f"random numbers have dtype float32 or float64, not {kind}: cast with xp.astype"
        )
    return kind


def _of_64_bits(value: Any, what: str) -> int:
    number = operator.index(value)
    if not 0 <= number < _END:
        raise ValueError(f"{what} is from 0 to 2**64 - 1, not {number}")
    return number


def _restored(state: dict[str, int]) -> Generator:
    made = Generator(0)
    made.state = state
    return made
