"""Random programs with control flow, their meaning in plain Python, and their runs as graphs."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from helpers.engine_programs.op_functions import PATIENCE_S, PlannedExit
from helpers.engine_programs.runner import open_engine
from hypothesis import strategies as st

import cudasync as cs
from cudasync.array.functions.philox import below

if TYPE_CHECKING:
    from helpers.engine_programs.steps import Setting

# Arrays on a device and on the CPU. The last one of each group is a flag with one element.
ON_DEVICE, ON_HOST = ("d0", "d1", "df"), ("h0", "h1", "hf")
FLAGS = ("df", "hf")
COUNT = 4
# Random numbers are below this, by this seed.
MOST, SEED = 6, 5


class Do(NamedTuple):
    """A step: "add" a number, "mix" in another array, "set", "halve", "note", "draw" random
    numbers, or "fail"."""

    verb: str
    target: str
    value: Any = 0


class Block(NamedTuple):
    """A block: "repeat" a number of times, or "while" or "cond" with a flag."""

    verb: str
    by: Any
    bodies: tuple[tuple[Any, ...], ...]


@cache
def _steps(names: tuple[str, ...], looping: frozenset[str], *, fails: bool) -> Any:
    """Steps on these arrays. A step never raises the flag of a loop around it."""
    plain = [name for name in names if name not in looping]
    numbers, none = st.integers(0, 5), st.just(0)
    flags = [name for name in names if name in FLAGS]
    kinds = [
        st.builds(Do, st.just("halve"), st.sampled_from(flags), none),
        st.builds(Do, st.just("set"), st.sampled_from(plain), numbers),
        st.builds(Do, st.just("draw"), st.sampled_from(plain), none),
    ]
    wide = [name for name in names if name not in FLAGS]
    kinds.append(st.builds(Do, st.just("add"), st.sampled_from(wide), numbers))
    for pair in (wide[:2], wide[2:]):
        if pair:
            kinds.append(
                st.builds(Do, st.just("mix"), st.sampled_from(pair), st.sampled_from(pair))
            )
    hosts = [name for name in wide if name in ON_HOST]
    if hosts:
        kinds.append(st.builds(Do, st.just("note"), st.sampled_from(hosts), numbers))
    if fails:
        also = [name for name in plain if name in ON_HOST]
        kinds.append(st.builds(Do, st.just("fail"), st.sampled_from(also), none))
    return st.one_of(kinds)


@st.composite
def control_programs(draw: Any, *, fails: bool = False, names: Any = None) -> tuple[Any, ...]:
    """Steps and nested blocks on these arrays; programs with failures use host arrays only."""
    names = names or (ON_HOST if fails else ON_DEVICE + ON_HOST)
    flags = [name for name in names if name in FLAGS]

    def body(depth: int, looping: frozenset[str], least: int = 0) -> tuple[Any, ...]:
        made: list[Any] = []
        for _ in range(draw(st.integers(least, 3))):
            verbs = ("do", "do", "repeat", "while", "cond") if depth else ("do",)
            verb = draw(st.sampled_from(verbs))
            by = draw(st.sampled_from(flags))
            if verb == "do":
                made.append(draw(_steps(names, looping, fails=fails)))
            elif verb == "repeat":
                made.append(Block(verb, draw(st.integers(0, 3)), (body(depth - 1, looping),)))
            elif verb == "while":
                inside = body(depth - 1, looping | {by})
                made.append(Block(verb, by, ((*inside, Do("halve", by)),)))
            else:
                count = draw(st.integers(1, 2))
                bodies = tuple(body(depth - 1, looping) for _ in range(count))
                made.append(Block(verb, by, bodies))
        return tuple(made)

    return body(2, frozenset(), 1)


def begin() -> dict[str, list[int]]:
    """The initial content of the arrays."""
    return {
        name: [3] if name in FLAGS else [at] * COUNT for at, name in enumerate(ON_DEVICE + ON_HOST)
    }


class Interpreter:
    """The same program in plain Python. A poisoned value is None."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = begin()
        self.notes: Any = []
        # How many numbers were drawn.
        self.count: int | None = 0

    def run(self, program: tuple[Any, ...]) -> None:
        for step in program:
            if isinstance(step, Block):
                self._block(step)
            else:
                self._do(step)

    def _block(self, block: Block) -> None:
        if block.verb == "repeat":
            for _ in range(block.by):
                self.run(block.bodies[0])
            return
        while True:
            flag = self.values[block.by]
            if flag is None:
                # Nobody knows which body would have run, so everything that a body may write is
                # poisoned.
                for name in written(block.bodies):
                    if name == "notes":
                        self.notes = None
                    elif name == "count":
                        self.count = None
                    else:
                        self.values[name] = None
                return
            if flag[0]:
                self.run(block.bodies[0])
            elif block.verb == "cond" and len(block.bodies) > 1:
                self.run(block.bodies[1])
            if block.verb == "cond" or not flag[0]:
                return

    def _do(self, step: Do) -> None:
        values, target = self.values, step.target
        old = values[target]
        match step.verb:
            case "set":
                values[target] = [step.value] * len(old or begin()[target])
            case "fail":
                values[target] = None
            case "draw":
                values[target] = self._drawn(len(begin()[target]))
            case "note":
                is_whole = old is not None and self.notes is not None
                self.notes = [*self.notes, (step.value, *old)] if is_whole else None
            case "halve":
                values[target] = old and [each // 2 for each in old]
            case "add":
                values[target] = old and [each + step.value for each in old]
            case "mix":
                other = values[step.value]
                if old is None or other is None:
                    values[target] = None
                else:
                    values[target] = [(a + b) % 1000 for a, b in zip(old, other, strict=True)]

    def _drawn(self, size: int) -> list[int] | None:
        if self.count is None:
            return None
        index = np.arange(size, dtype=np.uint64)
        drawn = below(SEED, np.uint64(self.count), MOST, index)
        self.count += size
        return [int(each) for each in drawn]


def written(bodies: Any) -> set[str]:
    """The arrays that these programs may write, and "notes", and "count"."""
    found: set[str] = set()
    for step in (step for body in bodies for step in body):
        if not isinstance(step, Block):
            found.add("notes" if step.verb == "note" else step.target)
            found |= {"count"} if step.verb == "draw" else set()
        elif step.by != 0:
            found |= written(step.bodies)
    return found


class _Graph:
    """The same program, recorded."""

    def __init__(self) -> None:
        self.arrays = {
            name: cs.array(np.array(held, np.int32), device="cpu" if name in ON_HOST else 0)
            for name, held in begin().items()
        }
        self.notes: list[Any] = []
        self.noted = cs.Var("notes")
        self.rng = cs.random.Generator(SEED)

    def record(self, g: Any, program: tuple[Any, ...]) -> None:
        for step in program:
            if not isinstance(step, Block):
                self.do(step)
                continue
            by = self.arrays.get(step.by, step.by)
            begin_block = {"repeat": g.repeat, "while": g.while_loop, "cond": g.cond}[step.verb]
            with begin_block(by) as block:
                self.record(g, step.bodies[0])
            if len(step.bodies) > 1:
                with block.otherwise():
                    self.record(g, step.bodies[1])

    def do(self, step: Do) -> None:
        x = self.arrays[step.target]
        match step.verb:
            case "set":
                x[...] = step.value
            case "halve":
                x //= 2
            case "add":
                x += step.value
            case "mix":
                x += self.arrays[step.value]
                x %= 1000
            case "fail":
                # Two kinds of exceptions, without a further choice.
                fail = _fail if step.target == "h0" else _exit
                cs.engine().push(fail, writes=x, name="fail")
            case "draw":
                x[...] = self.rng.integers(MOST, shape=x.shape, dtype=np.int32, device=x.device)
            case "note":
                seen = _view(x)
                note = lambda: self.notes.append((step.value, *seen.tolist()))  # noqa: E731
                cs.engine().push(note, reads=[x, self.noted], writes=self.noted)

    def outcome(self, engine: Any) -> tuple[dict[str, Any], Any, int | None]:
        def value(name: str) -> Any:
            try:
                return self.arrays[name].numpy().tolist()
            except cs.OpError:
                return None

        found = {name: value(name) for name in self.arrays}
        try:
            self.noted.wait()
            notes: Any = list(self.notes)
        except cs.OpError:
            notes = None
        try:
            count: int | None = self.rng.state["counter"]
        except cs.OpError:
            count = None
        engine.clear_errors()
        return found, notes, count


def _view(x: Any) -> Any:
    """The memory of a CPU array, for a function that declares its read."""
    from cudasync.array.host.memory import view_of

    return view_of(x)


def _fail() -> None:
    raise ValueError("planned")


def _exit() -> None:
    raise PlannedExit


def control_differences(
    program: tuple[Any, ...],
    setting: Setting,
    times: int = 2,
    *,
    beside: bool = False,
    without: tuple[str, ...] = (),
) -> list[str]:
    """The differences between a graph and plain Python; `beside` adds steps between launches."""
    model = Interpreter()
    extra = Do("mix", "h0", "h1"), Do("set", "hf", 5), Do("draw", "h1")
    with open_engine(setting) as engine, cs.use(engine):
        made = _Graph()
        with cs.graph() as g:
            made.record(g, program)
        executable = g.instantiate(without=without)
        for _ in range(times):
            executable.launch()
            model.run(program)
            if beside:
                for step in extra:
                    made.do(step)
                model.run(extra)
        with suppress(cs.OpError):
            engine.waitall(PATIENCE_S)
        values, notes, count = made.outcome(engine)
        executable.close()
    found = [
        f"{name} is {values[name]}, not {wanted}"
        for name, wanted in model.values.items()
        if values[name] != wanted
    ]
    if notes != model.notes:
        found.append(f"notes are {notes}, not {model.notes}")
    if count != model.count:
        found.append(f"{count} numbers were drawn, not {model.count}")
    return found


def rebound_control_differences(
    program: tuple[Any, ...], setting: Setting, turns: list[int], without: tuple[str, ...] = ()
) -> list[str]:
    """The differences of a graph when all arrays, including flags, are replaced at each turn."""
    models, notes, count = [Interpreter(), Interpreter()], [], 0
    with open_engine(setting) as engine, cs.use(engine):
        made, other = _Graph(), _Graph()
        sets = [made.arrays, other.arrays]
        with cs.graph() as g:
            made.arrays = {name: g.argument(name, array) for name, array in sets[0].items()}
            made.record(g, program)
        with g.instantiate(without=without) as executable:
            for turn in turns:
                executable.update(**sets[turn])
                executable.launch()
                models[turn].notes, models[turn].count = notes, count
                models[turn].run(program)
                notes, count = models[turn].notes, models[turn].count
            engine.waitall(PATIENCE_S)
        held = [{name: array.numpy().tolist() for name, array in each.items()} for each in sets]
    found = [
        f"{name} of set {number} is {values[name]}, not {wanted}"
        for number, values in enumerate(held)
        for name, wanted in models[number].values.items()
        if values[name] != wanted
    ]
    if made.notes != notes:
        found.append(f"notes are {made.notes}, not {notes}")
    return found
