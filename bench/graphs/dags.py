"""The programs of bench_dags: six programs with which GrCUDA's authors measure their scheduler.

After Parravicini et al., "DAG-based Scheduling with Resource Sharing for Multi-task Applications in
a Polyglot GPU Runtime" (IPDPS 2021), and the descriptions in their suite. The kinds of kernels and
the dependencies are theirs; kernels and sizes are ours. A result never overwrites an input, so a
run can be repeated. The exception is HITS, which continues from its last state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench.graphs import dags_in_numpy
from bench.graphs.dags_in_numpy import HITS_ROUNDS, OPTIONS, RATE, STRIKE, VOLATILITY, YEARS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BLOCK = 128
COLUMNS, CLASSES = 32, 10
LINKS = 4
FILTERS = 4


@dataclass(frozen=True)
class Step:
    """A launch on `stream` if placed by hand. Names in `args` are arrays; it writes `writes`."""

    kernel: str
    threads: int
    args: tuple[str | int | float, ...]
    writes: str
    stream: int

    @property
    def blocks(self) -> int:
        return -(-self.threads // BLOCK)

    @property
    def touches(self) -> list[str]:
        return [each for each in self.args if isinstance(each, str)]


@dataclass
class Dag:
    """A program: arrays with their first values, steps in order, and the expected results."""

    name: str
    arrays: dict[str, np.ndarray]
    expected: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
    steps: list[Step] = field(default_factory=list)
    # So many rounds of the same steps.
    rounds: int = 1

    def add(
        self, kernel: str, threads: int, *args: str | int | float, writes: str, stream: int = 0
    ) -> None:
        self.steps.append(Step(kernel, threads, args, writes, stream))

    def reduce(self, kernel: str, *args: str | int, writes: str, stream: int = 0) -> None:
        """A step of one block."""
        self.add(kernel, BLOCK, *args, writes=writes, stream=stream)

    def waits(self) -> list[list[int]]:
        """For each step, the steps on other streams for which it must wait."""
        writer: dict[str, int] = {}
        readers: dict[str, list[int]] = {}
        found: list[list[int]] = []
        for number, step in enumerate(self.steps):
            before = {writer[each] for each in step.touches if each in writer}
            before.update(readers.get(step.writes, ()))
            # The latest step of another stream stands for the earlier ones.
            youngest = {self.steps[each].stream: each for each in sorted(before)}
            youngest.pop(step.stream, None)
            found.append(sorted(youngest.values()))
            for each in step.touches:
                readers.setdefault(each, []).append(number)
            writer[step.writes], readers[step.writes] = number, []
        return found


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.random(shape, dtype=np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def vec(n: int, random: np.random.Generator) -> Dag:
    """Two squares, and the sum of their difference."""
    arrays = {"x": floats(random, n), "y": floats(random, n)}
    arrays |= {"x2": zeros(n), "y2": zeros(n), "sum": zeros(1)}
    dag = Dag("VEC", arrays, dags_in_numpy.vec)
    dag.add("square", n, "x", "x2", n, writes="x2")
    dag.add("square", n, "y", "y2", n, writes="y2", stream=1)
    dag.reduce("difference", "x2", "y2", "sum", n, writes="sum")
    return dag


def black_scholes(n: int, random: np.random.Generator) -> Dag:
    """The prices of options on ten independent underlyings."""
    arrays = {f"spot{i}": STRIKE + random.random(n) - 0.5 for i in range(OPTIONS)}
    arrays |= {f"price{i}": np.zeros(n) for i in range(OPTIONS)}
    dag = Dag("B&S", arrays, dags_in_numpy.black_scholes)
    for i in range(OPTIONS):
        market = (STRIKE, RATE, VOLATILITY, YEARS)
        spot, price = f"spot{i}", f"price{i}"
        dag.add("call_price", n, spot, price, *market, n, writes=price, stream=i)
    return dag


def image(side: int, random: np.random.Generator) -> Dag:
    """A picture that is sharpened at its edges and softened elsewhere: three blurs, two masks."""
    n = side * side
    arrays = {"image": floats(random, n), "low": zeros(1), "high": zeros(1)}
    for name, radius, deviation in (("small", 1, 1), ("large", 2, 10), ("sharp", 1, 5)):
        arrays[f"{name} weights"] = dags_in_numpy.gauss(radius, deviation)
    arrays |= {name: zeros(n) for name in ("small", "large", "sharp", "small mask", "large mask")}
    arrays |= {name: zeros(n) for name in ("sharpened", "inner", "out")}
    dag = Dag("IMG", arrays, dags_in_numpy.image)
    add = dag.add
    add("blur", n, "image", "small weights", "small", side, 1, writes="small", stream=0)
    add("blur", n, "image", "large weights", "large", side, 2, writes="large", stream=1)
    add("blur", n, "image", "sharp weights", "sharp", side, 1, writes="sharp", stream=2)
    add("edges", n, "small", "small mask", side, writes="small mask", stream=0)
    add("edges", n, "large", "large mask", side, writes="large mask", stream=1)
    dag.reduce("largest", "large mask", "high", n, writes="high", stream=1)
    dag.reduce("smallest", "large mask", "low", n, writes="low", stream=3)
    add("unsharpen", n, "image", "sharp", "sharpened", 0.5, n, writes="sharpened", stream=2)
    add("stretch", n, "large mask", "low", "high", n, writes="large mask", stream=1)
    parts = ("sharpened", "large", "large mask", "inner")
    add("combine", n, *parts, n, writes="inner", stream=1)
    add("combine", n, "inner", "small", "small mask", "out", n, writes="out", stream=1)
    return dag


def ensemble(rows: int, random: np.random.Generator) -> Dag:
    """Naive Bayes and ridge regression side by side, and the class with the best sum of scores."""
    arrays = {
        "x": random.integers(0, 10, (rows, COLUMNS)).astype(np.float32),
        "likelihood": floats(random, CLASSES, COLUMNS) / COLUMNS,
        "prior": floats(random, CLASSES),
        "ridge": floats(random, CLASSES, COLUMNS) / COLUMNS,
        "intercept": floats(random, CLASSES),
        "z": zeros(rows, COLUMNS),
        "bayes": zeros(rows, CLASSES),
        "regression": zeros(rows, CLASSES),
        "most": zeros(rows),
        "log sum": zeros(rows),
        "best": np.zeros(rows, np.int32),
    }
    dag = Dag("ML", arrays, dags_in_numpy.ensemble)
    shape = (rows, COLUMNS, CLASSES)
    r, b = "regression", "bayes"
    dag.add("normalise", COLUMNS, "x", "z", rows, COLUMNS, writes="z")
    dag.add("scores", rows, "x", "likelihood", "prior", b, *shape, writes=b, stream=1)
    dag.add("scores", rows, "z", "ridge", "intercept", r, *shape, writes=r)
    dag.add("row_largest", rows, b, "most", rows, CLASSES, writes="most", stream=1)
    dag.add("row_log_sum", rows, b, "most", "log sum", rows, CLASSES, writes="log sum", stream=1)
    dag.add("row_exponential", rows, b, "log sum", rows, CLASSES, writes=b, stream=1)
    dag.add("softmax", rows, r, rows, CLASSES, writes=r)
    dag.add("softmax", rows, b, rows, CLASSES, writes=b, stream=1)
    dag.add("best", rows, r, b, "best", rows, CLASSES, writes="best")
    return dag


def hits(n: int, random: np.random.Generator, rounds: int = HITS_ROUNDS) -> Dag:
    """Hubs and authorities of a graph: two chains that cross in each round."""
    source, target = np.repeat(np.arange(n), LINKS), random.integers(0, n, n * LINKS)
    arrays = {"hubs": zeros(n) + 1, "authorities": zeros(n) + 1}
    for name, by, other in (("out", source, target), ("in", target, source)):
        arrays[f"{name} begin"] = np.searchsorted(np.sort(by), np.arange(n + 1)).astype(np.int32)
        arrays[f"{name} from"] = other[np.argsort(by, kind="stable")].astype(np.int32)
    for name in ("hubs", "authorities"):
        arrays |= {f"new {name}": zeros(n), f"{name} sum": zeros(1)}
    dag = Dag("HITS", arrays, partial(dags_in_numpy.hits, rounds=rounds), rounds=rounds)
    sides = (("authorities", "hubs", "in", 0), ("hubs", "authorities", "out", 1))
    for _ in range(rounds):
        for to, of, links, stream in sides:
            edges = (f"{links} begin", f"{links} from")
            dag.add("gather", n, *edges, of, f"new {to}", n, writes=f"new {to}", stream=stream)
        for to, _, _, stream in sides:
            dag.reduce("total", f"new {to}", f"{to} sum", n, writes=f"{to} sum", stream=stream)
        for to, _, _, stream in sides:
            dag.add("divide", n, f"new {to}", f"{to} sum", to, n, writes=to, stream=stream)
    return dag


def twins(half: int, random: np.random.Generator) -> Dag:
    """Two pictures through the same convolutions, joined, and a number for their similarity."""
    side, n = 2 * half, FILTERS * half * half
    arrays = {
        "first": floats(random, FILTERS, 1, 9) - np.float32(0.3),
        "second": floats(random, FILTERS, FILTERS, 9) - np.float32(0.3),
        "joined": zeros(2 * n),
        "last": floats(random, 2 * n),
        "alike": zeros(1),
    }
    dag = Dag("DL", arrays, dags_in_numpy.twins)
    for stream, x in enumerate("xy"):
        wide, pooled, deep = f"{x} wide", f"{x} pooled", f"{x} deep"
        arrays |= {x: floats(random, side * side), wide: zeros(FILTERS * side * side)}
        arrays |= {pooled: zeros(n), deep: zeros(n)}
        first, second = (side, 1, FILTERS), (half, FILTERS, FILTERS)
        dag.add("convolve", 4 * n, x, "first", wide, *first, writes=wide, stream=stream)
        dag.add("pool", n, wide, pooled, half, FILTERS, writes=pooled, stream=stream)
        dag.add("convolve", n, pooled, "second", deep, *second, writes=deep, stream=stream)
    dag.add("join", 2 * n, "x deep", "y deep", "joined", n, writes="joined")
    dag.reduce("dense", "joined", "last", "alike", 2 * n, writes="alike")
    return dag


def all_dags(size_of: Callable[[str, int, int], int]) -> Sequence[Dag]:
    """The six programs, with sizes from `size_of(name, small, large)`."""
    random = np.random.default_rng(1)
    return [
        vec(size_of("vec_elements", 256, 65_536), random),
        black_scholes(size_of("options", 128, 4_096), random),
        image(size_of("image_side", 16, 96), random),
        ensemble(size_of("ml_rows", 64, 1_024), random),
        hits(size_of("hits_nodes", 128, 8_192), random),
        twins(size_of("dl_half_side", 8, 24), random),
    ]
