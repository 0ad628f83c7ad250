"""Random programs with control flow, their meaning in plain Python, and their runs as graphs."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from helpers.engine_programs.op_functions import PATIENCE_S, PlannedExit
from helpers.engine_programs.runner import open_engine
from hypothesis import reject
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
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
    numbers, or "fail".

    "total" adds the sum of an array to each element.

    "make" computes a new array from two others; its value says whether the program keeps it. Later
    steps may have it as an array like any other ("t3"), in any block: it is one memory, and has the
    value that it was given last, in this round, an earlier one, or an earlier launch.
    """

    verb: str
    target: str
    value: Any = 0


class Made(NamedTuple):
    """The operands of an array that a program makes, and whether the program keeps it."""

    left: str
    right: str
    is_kept: bool


class Undefined(Exception):
    """The program reads an array that no step has made."""


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
def control_programs(
    draw: Any, *, fails: bool = False, names: Any = None, makes: bool = False
) -> tuple[Any, ...]:
    """Steps and nested blocks on these arrays; programs with failures use host arrays only.

    With `makes`, steps also make arrays on the device, which later steps use. Nothing says whether
    a step that makes an array has run by then: see `is_defined`.
    """
    names = names or (ON_HOST if fails else ON_DEVICE + ON_HOST)
    flags = [name for name in names if name in FLAGS]
    # The arrays that the program has made so far, in the order of the recording.
    known: list[str] = []

    def made_or_used() -> Do:
        arrays = [*ON_DEVICE[:2], *known, *known]
        left, right = (draw(st.sampled_from(arrays)) for _ in range(2))
        if draw(st.booleans()):
            known.append(f"t{len(known)}")
            return Do("make", known[-1], Made(left, right, draw(st.sampled_from((False, True)))))
        return Do(draw(st.sampled_from(("mix", "total"))), left, right)

    def body(depth: int, looping: frozenset[str], least: int = 0) -> tuple[Any, ...]:
        made: list[Any] = []
        for _ in range(draw(st.integers(least, 3))):
            verbs = ("do", "do", "repeat", "while", "cond") if depth else ("do",)
            verb = draw(st.sampled_from(verbs))
            by = draw(st.sampled_from(flags))
            if verb == "do" and makes and draw(st.integers(0, 3)):
                made.append(made_or_used())
            elif verb == "do":
                made.append(draw(_steps(names, looping, fails=fails)))
            elif verb == "repeat":
                made.append(Block(verb, draw(st.integers(0, 3)), (body(depth - 1, looping),)))
            elif verb == "while":
                inside = body(depth - 1, looping | {by})
                made.append(Block(verb, by, ((*inside, Do("halve", by)),)))
            else:
                count = draw(st.integers(1, 2))
                bodies = [body(depth - 1, looping)]
                if makes and count > 1 and draw(st.booleans()):
                    # An array for a later round or launch, in which the flag is false.
                    known.append(f"t{len(known)}")
                    of = Made(*ON_DEVICE[:2], is_kept=False)
                    bodies[0] = (*bodies[0], Do("make", known[-1], of))
                    target = draw(st.sampled_from(ON_DEVICE[:2]))
                    bodies.append((Do("mix", target, known[-1]),))
                elif count > 1:
                    bodies.append(body(depth - 1, looping))
                made.append(Block(verb, by, tuple(bodies)))
                if makes and draw(st.booleans()):
                    made.append(Do("halve", by))
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
        """Raises Undefined for a read of an array that was never made."""
        for step in program:
            if isinstance(step, Block):
                self._block(step)
            elif step.verb == "make":
                left, right = self._value(step.value.left), self._value(step.value.right)
                made = [a * 2 + b - 1 for a, b in zip(left, right, strict=True)]
                self.values[step.target] = [each % 1000 for each in made]
            else:
                self._do(step)

    def _value(self, name: str) -> Any:
        if name not in self.values:
            raise Undefined(name)
        return self.values[name]

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
        old = self._value(target)
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
                other = self._value(step.value)
                if old is None or other is None:
                    values[target] = None
                else:
                    values[target] = [(a + b) % 1000 for a, b in zip(old, other, strict=True)]

            case "total":
                total = sum(2 * each + 1 for each in self._value(step.value))
                values[target] = [(each + total) % 1000 for each in old]

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
            assert step.verb != "make", "an array that is made has no value to be poisoned"
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
        # The names of arrays that the program makes and keeps.
        self.kept: set[str] = set()

    def drop(self) -> None:
        """Drop the arrays that the program made and does not keep."""
        own = {*begin(), *self.kept}
        self.arrays = {name: array for name, array in self.arrays.items() if name in own}

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
        if step.verb == "make":
            left, right = self.arrays[step.value.left], self.arrays[step.value.right]
            self.arrays[step.target] = (left * 2 + right - 1) % 1000
            if step.value.is_kept:
                self.kept.add(step.target)
            return
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
            case "total":
                total = xp.sum(self.arrays[step.value] * 2 + 1, dtype=np.int32)
                x += total
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
            except cs.RecordingError:
                # No launch makes it, as in a block that is repeated 0 times.
                assert name not in begin()
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


def is_defined(program: tuple[Any, ...]) -> bool:
    """True if three runs of the program read no array that was never made."""
    model = Interpreter()
    try:
        for _ in range(3):
            model.run(program)
    except Undefined:
        return False
    return True


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
        made.drop()
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
        f"{name} is {values[name]}, not {model.values[name]}"
        for name in values
        if name in model.values and values[name] != model.values[name]
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
    # The values of arrays that the graph makes, whatever its arguments are.
    shared: dict[str, Any] = {}
    with open_engine(setting) as engine, cs.use(engine):
        made, other = _Graph(), _Graph()
        sets = [made.arrays, other.arrays]
        with cs.graph() as g:
            made.arrays = {name: g.argument(name, array) for name, array in sets[0].items()}
            made.record(g, program)
        made.drop()
        with g.instantiate(without=without) as executable:
            for turn in turns:
                executable.update(**sets[turn])
                executable.launch()
                models[turn].notes, models[turn].count = notes, count
                models[turn].values |= shared
                try:
                    models[turn].run(program)
                except Undefined:
                    # On these arrays in this order.
                    reject()
                notes, count = models[turn].notes, models[turn].count
                shared = {n: v for n, v in models[turn].values.items() if n not in begin()}
            engine.waitall(PATIENCE_S)
        held = [{name: array.numpy().tolist() for name, array in each.items()} for each in sets]
    found = [
        f"{name} of set {number} is {values[name]}, not {wanted}"
        for number, values in enumerate(held)
        for name, wanted in models[number].values.items()
        if name in values and values[name] != wanted
    ]
    if made.notes != notes:
        found.append(f"notes are {made.notes}, not {notes}")
    return found
