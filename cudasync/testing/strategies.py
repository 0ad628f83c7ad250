"""The tower. Hypothesis strategies: random programs, DAGs, launches and arrays.

Hypothesis is imported when a strategy is made, so that the rest of the room works without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array import array as to_device
from cudasync.array import copy
from cudasync.engine import Engine, engine, use
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

_LENGTH = 24
_WARP, _MOST_THREADS = 32, 1024


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """A step on elements `start` to `stop` of array `target`, by the same elements of `source`.

    `kind` is "device" (an operator) or "host" (a host op), for target = 3 * target + factor *
    source. "up" copies from the host's array to the device's, "down" the other way.
    """

    kind: str
    target: int
    source: int
    start: int
    stop: int
    factor: int


@dataclass(frozen=True, slots=True)
class Program:
    """Steps over `count` arrays of int32 on the device, and as many on the host.

    A call runs the program on the current engine, and returns the values of all arrays at the end.
    """

    count: int
    steps: tuple[ProgramStep, ...]

    def __call__(self) -> list[list[int]]:
        start = [np.arange(_LENGTH, dtype=np.int32) + 100 * i for i in range(2 * self.count)]
        on_device, on_host = [to_device(each) for each in start[: self.count]], start[self.count :]
        for step in self.steps:
            part = slice(step.start, step.stop)
            match step.kind:
                case "device":
                    target, source = on_device[step.target], on_device[step.source]
                    target[part] = target[part] * 3 + source[part] * step.factor
                case "host":
                    _push(on_host[step.target][part], on_host[step.source][part], step.factor)
                case "up":
                    copy(on_device[step.target][part], on_host[step.source][part])
                case "down":
                    copy(on_host[step.target][part], on_device[step.source][part])
        engine().waitall()
        return [each.tolist() for each in (*(x.numpy() for x in on_device), *on_host)]


def _push(target: Any, source: Any, factor: int) -> None:
    def act() -> None:
        target[:] = 3 * target + factor * source

    engine().push(act, reads=(source, target), writes=(target,))


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """A grid and a block, in x, and the number of elements for the threads."""

    grid: int
    block: int
    count: int


def programs(*, most_arrays: int = 3, most_steps: int = 20) -> SearchStrategy[Program]:
    """Programs of operators, host ops and copies, with hazards on parts of few arrays.

    For `check_against_serial`. CudasyncError without Hypothesis, as from all strategies here.
    """
    st = _hypothesis()

    def of(count: int) -> Any:
        index = st.integers(0, count - 1)
        halves = [(0, _LENGTH), (0, _LENGTH // 2), (_LENGTH // 2, _LENGTH)]
        some = [(a, b) for a in range(_LENGTH) for b in range(a + 1, _LENGTH + 1)]
        step = st.builds(
            lambda kind, target, source, part, factor: ProgramStep(
                kind, target, source, part[0], part[1], factor
            ),
            st.sampled_from(["device", "host", "up", "down"]),
            index,
            index,
            st.sampled_from([*halves * 20, *some]),
            st.integers(1, 9),
        )
        steps = st.lists(step, min_size=1, max_size=most_steps).map(tuple)
        return st.builds(Program, st.just(count), steps)

    found: SearchStrategy[Program] = st.integers(1, most_arrays).flatmap(of)
    return found


def dags(*, most_nodes: int = 8) -> SearchStrategy[tuple[tuple[int, ...], ...]]:
    """Graphs without a cycle: for each node the earlier nodes that come before it, ascending."""
    st = _hypothesis()

    def of(masks: list[int]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(j for j in range(i) if mask >> j & 1) for i, mask in enumerate(masks))

    masks = st.lists(st.integers(0, 2**most_nodes - 1), min_size=1, max_size=most_nodes)
    found: SearchStrategy[tuple[tuple[int, ...], ...]] = masks.map(of)
    return found


def launches(*, most_count: int = 5000) -> SearchStrategy[LaunchShape]:
    """Launches with a thread for each of `count` elements.

    Blocks have whole and partial warps; a grid has one block or many; no threads or many are left
    over.
    """
    st = _hypothesis()

    def of(count: int, block: int) -> LaunchShape:
        return LaunchShape(-(-count // block), block, count)

    near = [n + d for n in (_WARP, 2 * _WARP, 256, _MOST_THREADS) for d in (-1, 0, 1)]
    blocks = st.sampled_from([n for n in (1, *near) if n <= _MOST_THREADS])
    blocks = st.one_of(blocks, st.integers(1, _MOST_THREADS))
    counts = st.sampled_from([n for n in (1, *near) if n <= most_count])
    found: SearchStrategy[LaunchShape] = st.builds(
        of, st.one_of(counts, st.integers(1, most_count)), blocks
    )
    return found


def arrays(dtype: Any = np.float32, *, most_dims: int = 3, most_side: int = 8) -> Any:
    """NumPy arrays for kernels and `cs.array`: of any shape, also empty and 0-dimensional.

    Some have gaps or run backwards; floating-point numbers are finite.
    """
    st = _hypothesis()
    extra = import_module("hypothesis.extra.numpy")
    dtype = np.dtype(dtype)
    elements = {"allow_nan": False, "allow_infinity": False} if dtype.kind in "fc" else None
    shapes = extra.array_shapes(min_dims=0, max_dims=most_dims, min_side=0, max_side=most_side)
    if dtype.kind == "V" and not dtype.fields:
        # Bytes without a meaning: Hypothesis has no elements for them.
        raw = extra.arrays(np.uint8, shapes.map(lambda shape: (*shape, dtype.itemsize)))
        whole = raw.map(lambda data: data.view(dtype)[..., 0])
    else:
        whole = extra.arrays(dtype, shapes, elements=elements)
    steps = st.sampled_from([1, 1, 2, -1])
    return st.builds(lambda data, step: data[::step] if data.ndim else data, whole, steps)


def check_against_serial(program: Callable[[], object], *, streams: int = 4) -> None:
    """Run `program` on a serial engine and on one with several streams, and compare the results.

    The program uses the current engine, makes its own data, and returns its results: numbers,
    arrays, or lists and tuples of them, which must be equal bit by bit. AssertionError shows the
    difference and the program. Blocks until all work is done.
    """
    with Engine("serial") as serial, use(serial):
        expected = program()
    try:
        with Engine(streams=streams) as several, use(several):
            seen = program()
    except CudasyncError as error:
        raise AssertionError(
            f"the engine fails, and the serial engine does not: {error}\nof {program!r}"
        ) from error
    try:
        np.testing.assert_equal(seen, expected)
    except AssertionError as difference:
        raise AssertionError(
            f"the engine's result differs from the serial engine's: {difference}\nof {program!r}"
        ) from None


def _hypothesis() -> Any:
    try:
        return import_module("hypothesis.strategies")
    except ImportError as error:
        raise CudasyncError("strategies need Hypothesis: pip install hypothesis") from error
