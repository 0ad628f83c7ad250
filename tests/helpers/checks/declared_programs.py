"""Random programs for CUDASYNC_CHECK=1: each op's declaration is right, or narrowed at random.

For each program a model that counts elements says whether some op exceeds its declaration. The
program prints this and the report of checked mode. Arguments: the first seed, the count, and
"blind" for a planted bug: declarations cover whole arrays, and checked mode must then miss
violations.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np

import cudasync as cs
from cudasync.engine.hazards import checked

KERNELS = Path(__file__).parents[1] / "kernels.ptx"
ARRAYS, N = 3, 16
Elements: TypeAlias = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class View:
    """Elements [start, end) of an array."""

    index: int
    start: int
    end: int

    @property
    def elements(self) -> Elements:
        return frozenset((self.index, i) for i in range(self.start, self.end))

    def of(self, arrays: list[cs.Array]) -> cs.Array:
        return arrays[self.index][self.start : self.end]


@dataclass(frozen=True)
class Command:
    """An enqueued command: a launch of `mix` or `set`, or a copy or fill of `count` elements."""

    kind: str
    target: View
    source: View

    @property
    def reads(self) -> Elements:
        target = self.target.elements if self.kind == "mix" else frozenset()
        return target | self.source.elements if self.kind in ("mix", "copy") else target

    @property
    def is_launch(self) -> bool:
        return self.kind in ("mix", "set")

    def enqueue(self, kernels: dict[str, Any], arrays: list[cs.Array], stream: cs.Stream) -> None:
        target, source = self.target.of(arrays), self.source.of(arrays)
        count = np.uint32(self.target.end - self.target.start)
        if self.kind == "copy":
            cs.memcpy_async(target, source, stream=stream)
        elif self.kind == "fill":
            cs.memset_async(target, 1, stream=stream)
        else:
            args = [target, source][: 2 if self.kind == "mix" else 1]
            args += [np.int32(1), count]
            cs.launch(kernels[self.kind], grid=1, block=N, args=args, stream=stream)


def drawn(random: Random, count: int) -> View:
    start = random.randrange(N - count + 1)
    return View(random.randrange(ARRAYS), start, start + count)


def command(random: Random, kinds: tuple[str, ...]) -> Command:
    count = random.randint(1, N // 2)
    while True:
        made = Command(random.choice(kinds), drawn(random, count), drawn(random, count))
        # A copy between overlapping ranges is undefined.
        if made.kind != "copy" or not made.target.elements & made.source.elements:
            return made


def narrowed(random: Random, view: View) -> View:
    """A part of the view: one end is cut off."""
    length = view.end - view.start
    cut = random.randint(1, length)
    if random.random() < 0.5:
        return View(view.index, view.start, view.end - cut)
    return View(view.index, view.start + cut, view.end)


def is_violated(commands: list[Command], reads: list[View], writes: list[View]) -> bool:
    """Whether the commands, in their order, access more than the declared views."""
    may_read = frozenset().union(*(view.elements for view in reads))
    may_write = frozenset().union(*(view.elements for view in writes))
    written: set[tuple[int, int]] = set()
    has_launched = False
    for each in commands:
        old = each.reads - may_read
        # A copy behind a launch may read what the launch wrote: the check cannot know.
        known = not has_launched or each.is_launch
        if old - may_write or (known and old & may_write - written):
            return True
        if each.target.elements - may_write:
            return True
        written |= each.target.elements
        has_launched |= each.is_launch
    return False


def function_op(random: Random, kernels: Any, arrays: Any, *, narrow: bool) -> tuple[bool, Any]:
    """A device op of some commands: whether it exceeds its declaration, and its push."""
    kinds = ("mix", "set", "copy", "fill")
    commands = [command(random, kinds) for _ in range(random.randint(1, 3))]
    reads = [each.source for each in commands if each.kind in ("mix", "copy")]
    reads += [each.target for each in commands if each.kind == "mix"]
    writes = [each.target for each in commands]
    if narrow:
        views = random.choice([each for each in (reads, writes) if each])
        place = random.randrange(len(views))
        views[place] = narrowed(random, views[place])

    def enqueue(stream: cs.Stream) -> None:
        for each in commands:
            each.enqueue(kernels, arrays, stream)

    def push() -> cs.Op:
        return cs.engine().push(
            enqueue,
            reads=[each.of(arrays) for each in reads],
            writes=[each.of(arrays) for each in writes],
            device=cs.Device(0),
        )

    return is_violated(commands, reads, writes), push


def kernel_op(random: Random, kernels: Any, arrays: Any, *, narrow: bool) -> tuple[bool, Any]:
    """Like `function_op`, for a call of a kernel on arrays."""
    does = command(random, ("mix", "set"))
    target, source = does.target, does.source
    wraps = [random.choice([lambda x: x, cs.InOut]), random.choice([lambda x: x, cs.In])]
    may_read, may_write = [target, source], [target]
    count = does.target.end - does.target.start
    if narrow and does.kind == "mix" and random.random() < 0.4:
        if random.random() < 0.5:
            wraps[0], may_read = cs.Out, [source]
        else:
            wraps[0], may_write = cs.In, []
    elif narrow:
        # The kernel gets a count larger than the view; the address stays.
        short = View(target.index, target.start, random.randrange(target.start, target.end))
        may_read, may_write, target = [short, source], [short], short
    elif does.kind == "set" and random.random() < 0.5:
        wraps[0] = cs.Out
    if does.kind == "set":
        may_read = may_read[:1]
    args = [wrap(view.of(arrays)) for wrap, view in zip(wraps, (target, source), strict=True)]
    args = [*args[: 2 if does.kind == "mix" else 1], np.int32(1), np.uint32(count)]
    is_wrong = is_violated([does], may_read, may_write)
    return is_wrong, lambda: kernels[does.kind][1, N](*args)


def run(seed: int) -> dict[str, Any]:
    """One program of some ops, one of which may have a declaration that is too narrow."""
    random = Random(seed)
    count = random.randint(1, 5)
    odd = random.randrange(count) if random.random() < 0.6 else -1
    is_wrong, said = False, ""
    with cs.use(cs.Engine(random.choice(["async", "serial"]))) as engine:
        module = cs.Module.from_file(KERNELS)
        kernels = {name: module.kernel(name) for name in ("mix", "set")}
        arrays = [cs.zeros(N, np.int32) for _ in range(ARRAYS)]
        engine.waitall()
        for place in range(count):
            make = random.choice([function_op, kernel_op])
            is_odd, push = make(random, kernels, arrays, narrow=place == odd)
            is_wrong |= is_odd
            push()
        try:
            engine.waitall()
        except cs.OpError as error:
            said = str(error)
        engine.clear_errors()
        if said:
            cs.Device(0).reset()
        engine.close()
    return {"seed": seed, "is_wrong": is_wrong, "said": said}


def main() -> None:
    first, count = map(int, sys.argv[1:3])
    if "blind" in sys.argv:
        right = checked.Declared
        # The rounding covers any array here, and arrays lie at least 256 bytes apart.
        checked.Declared = lambda start, end, *rest: right(start & -64, end + 64 & -64, *rest)
    print(json.dumps([run(seed) for seed in range(first, first + count)]))


if __name__ == "__main__":
    main()
