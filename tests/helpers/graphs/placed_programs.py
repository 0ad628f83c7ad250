"""Random programs on arrays of any device, named devices and the CPU, and their runs as graphs.

The reference is NumPy. Graphs place their steps by HEFT or at random.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from helpers.driver.graph_builder import PTX
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.graph.placement import plan
from cudasync.graph.placement.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZE = 8
DEVICES = (0, 1, 2)


class Step(NamedTuple):
    """A verb and the numbers of the arrays it uses. `is_kept`: the program keeps the new array
    until the end."""

    verb: str
    one: int
    other: int
    number: int
    is_kept: bool


VERBS = (
    "new", "bring", "bring", "bring cpu", "op", "op", "op", "mixed", "add", "shift", "total",
    "scan", "product", "mix", "set", "clear", "out", "in", "rows", "zeros", "host", "pinned",
    "from pinned", "repeat", "while", "cond",
)  # fmt: skip
# The bodies of these verbs are some of the following steps.
BLOCKS = ("repeat", "while", "cond")
few = st.integers(0, 5)


def lists_of(verbs: Sequence[str]) -> st.SearchStrategy[list[Step]]:
    """Programs of these verbs."""
    step = st.builds(Step, st.sampled_from(verbs), few, few, st.integers(1, SIZE), st.booleans())
    return st.lists(step, min_size=2, max_size=14)


programs = lists_of(VERBS)
# Programs that end even if a bug changes their values.
ending_programs = lists_of([verb for verb in VERBS if verb != "while"])


class World:
    """The arrays of a program: of named devices, of the CPU, pinned, and of any device."""

    def __init__(self, *, is_numpy: bool) -> None:
        values = [np.arange(1, SIZE + 1, dtype=np.int32) * (at + 1) for at in range(5)]
        self.is_numpy = is_numpy
        self.any: list[Any] = []
        self.kept: list[Any] = []
        *named, host, pinned = values
        if is_numpy:
            self.named, self.host, self.pinned = named, host, pinned
            return
        count = cs.device_count()
        self.named = [cs.array(v, device=d % count) for v, d in zip(named, DEVICES, strict=True)]
        self.host = cs.array(host, device="cpu")
        self.pinned = cs.pinned_empty((SIZE,), np.int32)
        self.pinned[:] = pinned
        self.kernels = cs.Module.from_ptx(PTX)

    def run(self, program: list[Step], graph: cs.RecordedGraph | None = None) -> None:
        """Run the program once, or record it. Afterwards only kept arrays remain."""
        self._graph: Any = graph
        self.any, self.kept = [self._full(3)], []
        self._run(program)
        self.any = []

    def _run(self, program: list[Step]) -> None:
        steps = iter(program)
        for step in steps:
            if step.verb in BLOCKS:
                self._block(step, list(islice(steps, 1 + step.other % 4)))
                continue
            one = self.any[step.one % len(self.any)]
            other = self.any[step.other % len(self.any)]
            made = self._do(step, one, other, self.named[step.other % len(self.named)])
            if made is not None:
                self.any.append(made)
                if step.is_kept:
                    self.kept.append(made)

    def _block(self, step: Step, body: list[Step]) -> None:
        """Run some steps in a block. Arrays from a block that may not run are dropped after it."""
        before = len(self.any), len(self.kept)
        one = self.any[step.one % len(self.any)]
        match step.verb:
            case "repeat":
                self._rounds(step.number % 3 + 1, body)
            case "while":
                # A flag of any device, or of device 0.
                count = self._full(step.number % 3, 1, cs.ANY if step.is_kept else 0)
                if self.is_numpy:
                    self._rounds(int(count[0]), body)
                else:
                    with self._graph.while_loop(count):
                        self._run(body)
                        count -= 1
                self._forget(before)
            case "cond":
                some = len(body) // 2
                if self.is_numpy:
                    self._run(body[:some] if one[0] else body[some:])
                else:
                    with self._graph.cond(one[:1]) as chosen:
                        self._run(body[:some])
                    self._forget(before)
                    with chosen.otherwise():
                        self._run(body[some:])
                self._forget(before)

    def _rounds(self, times: int, body: list[Step]) -> None:
        if not self.is_numpy:
            with self._graph.repeat(times):
                self._run(body)
            return
        before = len(self.any), len(self.kept)
        for _ in range(times):
            # A round replaces the arrays that the previous round made.
            self._forget(before)
            self._run(body)

    def _forget(self, before: tuple[int, int]) -> None:
        """Drop the arrays that were made since."""
        del self.any[before[0] :], self.kept[before[1] :]

    def _full(self, value: int, size: int = SIZE, device: Any = cs.ANY) -> Any:
        if self.is_numpy:
            return np.full(size, value, np.int32)
        return xp.full((size,), value, dtype=xp.int32, device=device)

    def _do(self, step: Step, one: Any, other: Any, named: Any) -> Any:
        n, is_numpy = step.number, self.is_numpy
        match step.verb:
            case "new":
                return self._full(n)
            case "zeros":
                return (
                    np.zeros(SIZE, np.int32)
                    if is_numpy
                    else cs.zeros(SIZE, np.int32, device=cs.ANY)
                )
            case "bring":
                return named.copy() if is_numpy else named.to_device(cs.ANY)
            case "bring cpu":
                return self.host.copy() if is_numpy else self.host.to_device(cs.ANY)
            case "op":
                return one * other + n
            case "mixed":
                return one + self.named[0]
            case "add":
                one += other
            case "shift":
                one[1:] += other[:-1].copy() if is_numpy else other[:-1]
            case "total":
                one += np.sum(other, dtype=np.int32) if is_numpy else xp.sum(other, dtype=xp.int32)
            case "scan":
                if is_numpy:
                    return np.cumsum(other, dtype=np.int32)
                return xp.cumulative_sum(other, dtype=xp.int32)
            case "product":
                one[:4] += (one.reshape(2, 4) @ other.reshape(4, 2)).reshape(4)
            case "mix" if one is not other:
                self._mix(one, other, n)
            case "set":
                self._set(one, n)
            case "clear":
                self._clear(one[:n])
            case "out":
                self._copy(named, one)
            case "in":
                self._copy(one[2:6], named[2:6])
            case "rows" if one is not other:
                self._copy(one.reshape(2, 4)[:, :2], other.reshape(2, 4)[:, 2:])
            case "host":
                self._copy(self.host, one)
            case "pinned":
                self._copy(self.pinned, one)
            case "from pinned":
                self._copy(one, self.pinned)
        return None

    def _copy(self, target: Any, source: Any) -> None:
        if self.is_numpy:
            target[...] = source
        else:
            cs.copy(target, source)

    def _mix(self, one: Any, other: Any, n: int) -> None:
        if self.is_numpy:
            one[:n] = 31 * one[:n] + 3 * other[:n] + np.arange(n, dtype=np.int32)
        else:
            self.kernels.kernel("mix")[1, 32](one, other, 3, np.uint32(n))

    def _set(self, one: Any, n: int) -> None:
        """The kernel declares that it overwrites the whole array, but writes the first n elements
        only."""
        if self.is_numpy:
            one[:n] = n + np.arange(n, dtype=np.int32)
        else:
            self.kernels.kernel("set")[1, 32](cs.Out(one), n, np.uint32(n))

    def _clear(self, view: Any) -> None:
        if self.is_numpy:
            view[...] = 0
        else:
            cs.engine().push(
                lambda stream: cs.memset_async(view, 0, stream=stream), writes=view, device=0
            )

    def outcome(self) -> list[list[int]]:
        """The content of the named arrays, and of the kept arrays of any device."""
        every = [*self.named, self.host, *self.kept]
        found = [(each if self.is_numpy else each.numpy()).tolist() for each in every]
        return [*found, self.pinned.tolist()]


@contextmanager
def placed_by(choose: Any) -> Iterator[None]:
    """Inside the block, `choose(places)` places each step on one of its possible places."""
    usual = plan.scheduled

    def chosen(tasks: Any, link: Any) -> Schedule:
        return Schedule([choose(list(task.seconds)) for task in tasks], -1.0)

    plan.scheduled = chosen
    try:
        yield
    finally:
        plan.scheduled = usual


def placed_differences(
    program: list[Step],
    seed: int | None = None,
    without: tuple[str, ...] = (),
    times: int = 2,
    *,
    within: bool = False,
) -> list[Any]:
    """The differences between a graph and NumPy. With a seed, steps are placed at random. With
    `within`, the placed graph is part of another graph, which places it again."""
    model, world = World(is_numpy=True), World(is_numpy=False)
    with np.errstate(over="ignore"):
        for _ in range(times):
            model.run(program)
    with cs.graph() as g:
        world.run(program, g)
    # Rounds that are written out would say nothing of blocks whose steps are placed.
    without = (*without, "unroll")
    if seed is None:
        executable = g.instantiate(without=without)
    else:
        with placed_by(Random(seed).choice):
            executable = g.instantiate(without=without)
            if within:
                with cs.graph() as outer:
                    executable.launch()
                executable = outer.instantiate(without=without)
    for _ in range(times):
        executable.launch()
    cs.waitall()
    found, wanted = world.outcome(), model.outcome()
    executable.close()
    return [pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1]]


def program_of(seed: int) -> list[Step]:
    """A random program, for processes that search by themselves."""
    draw = Random(seed)
    return [
        Step(
            draw.choice(VERBS), draw.randrange(6), draw.randrange(6), draw.randint(1, SIZE),
            draw.random() < 0.5,
        )
        for _ in range(draw.randint(4, 14))
    ]  # fmt: skip
