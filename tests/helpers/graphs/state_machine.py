"""The machine that compares engines drives a graph too, launch by launch.

One participant records a program and launches its graph; the others push the program again at each
launch. All must agree on every answer. Graphs are recorded with any passes left out, and launched
behind unfinished eager work, on fresh data, on other arrays by `update`, and within each other. A
failed op has another name in a graph, so failures are compared without names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from helpers.engine_programs.answers import raised
from helpers.engine_programs.op_functions import PATIENCE_S
from helpers.engine_programs.state_machine import ARRAYS, ROOM, Agreement, Participant
from helpers.engine_programs.steps import (
    LENGTH,
    Batch,
    ClearErrors,
    Fail,
    Push,
    Setting,
    Step,
    View,
)
from helpers.engine_programs.strategies import pushes, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

import cudasync as cs
from cudasync.graph.passes import PASSES

# No tokens: a graph writes a token once, however many of its ops do.
_ROOM = replace(ROOM, tokens=0)
_KINDS = (
    "mix", "mix", "host mix", "join", "set", "set", "add", "add", "total", "copy", "copy", "clear",
    "direct",
)  # fmt: skip
BODIES = st.lists(pushes(_ROOM, _KINDS, False, 1), min_size=1, max_size=8)
# If an op fails on a device, the graph leaves the whole segment out. On the host it leaves out the
# exact ops.
_ON_HOST = pushes(_ROOM, ("host mix", "host mix", "join", "set", "copy", "fail"), True, 1)
FAILING = st.lists(_ON_HOST.filter(lambda push: _is_on_host(push.step)), min_size=1, max_size=8)
WITHOUT = st.sets(st.sampled_from(sorted(PASSES)), max_size=3).map(tuple)
WHICH = st.integers(0, 9)


def _is_on_host(step: Step) -> bool:
    return all(each.space == "h" for each in (*step.reads, *step.writes))


@dataclass
class Recording:
    """A program of pushes, and its graph, if any."""

    pushes: list[tuple[str, Push]]
    # The current arrays, and the recording that runs first, with its arrays at that time.
    arrays: list[Any]
    first: tuple[Recording, list[Any]] | None = None
    executable: Any = None

    @property
    def is_on_host(self) -> bool:
        own = all(_is_on_host(push.step) for _, push in self.pushes)
        return own and (self.first is None or self.first[0].is_on_host)

    @property
    def can_fail(self) -> bool:
        own = any(isinstance(push.step, Fail) for _, push in self.pushes)
        return own or (self.first is not None and self.first[0].can_fail)


@dataclass
class GraphParticipant(Participant):
    """A participant that pushes programs again, or, if it records, launches their graphs."""

    records: bool = False
    recordings: list[Recording] = field(init=False, default_factory=list)
    # Two more arrays for each array of the program, for updates.
    spare: list[list[Any]] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        with cs.use(self.engine):
            self.spare = [
                [cs.array(np.arange(LENGTH, dtype=np.int32) + n, device=device) for n in (7, 50)]
                for device in self.runner.devices
            ]

    def record(
        self, pushed: list[tuple[str, Push]], without: tuple[str, ...], within: int | None
    ) -> None:
        first = None if within is None else self.recordings[within]
        made = Recording(pushed, list(self.runner.arrays), first and (first, list(first.arrays)))
        self.recordings.append(made)
        if self.records:
            with cs.use(self.engine):
                made.executable = self._recorded(made, without)

    def _recorded(self, made: Recording, without: tuple[str, ...]) -> Any:
        runner, outside = self.runner, self.engine
        with cs.graph() as g:
            if made.first is not None:
                made.first[0].executable.launch()
            slots = [g.argument(f"d{at}", each) for at, each in enumerate(made.arrays)]
            runner.engine = cs.engine()
            self._push_on(slots, made.pushes)
        runner.engine = outside
        runner.prepared.clear()
        return g.instantiate(without=without)

    def launch(self, which: int) -> None:
        made = self.recordings[which]
        with cs.use(self.engine):
            if made.executable is not None:
                made.executable.launch()
            else:
                self._repeat(made, made.arrays)

    def _repeat(self, made: Recording, arrays: list[Any]) -> None:
        if made.first is not None:
            self._repeat(*made.first)
        self._push_on(arrays, made.pushes)

    def _push_on(self, arrays: list[Any], pushed: list[tuple[str, Push]]) -> None:
        """Push these steps on the given arrays in place of the program's arrays."""
        runner = self.runner
        usual, runner.arrays = runner.arrays, arrays
        for id_, push in pushed:
            runner.push(id_, push)
            # An op of a graph has not run; all others are judged by their results in memory.
            runner.ops.pop(id_, None)
        runner.arrays = usual

    def update(self, which: int, index: int, choice: int) -> None:
        """Replace an array by the program's own one or a spare one."""
        made = self.recordings[which]
        array = [self.runner.arrays[index], *self.spare[index]][choice]
        made.arrays = [*made.arrays[:index], array, *made.arrays[index + 1 :]]
        if made.executable is not None:
            with cs.use(self.engine):
                made.executable.update(**{f"d{index}": array})

    def fill(self, which: int, value: int) -> None:
        """Write fresh data into all arrays of the recording."""
        with cs.use(self.engine):
            for at, array in enumerate(self.recordings[which].arrays):
                array[...] = np.arange(LENGTH, dtype=np.int32) * value + at

    def held(self, which: int) -> list[Any]:
        """The content of the program's arrays, and of the recording's current arrays."""
        with cs.use(self.engine):
            self.runner.release()
            every = [*self.runner.arrays, *self.recordings[which].arrays]
            return [_value(each) for each in every]


def _value(array: Any) -> Any:
    try:
        return array.numpy().tolist()
    except cs.OpError:
        return None


class GraphAgreement(Agreement):
    """The serial engine and an engine that push, and an engine that records."""

    def __init__(self) -> None:
        super().__init__()
        # The number of programs, which makes the ids of their steps unique.
        self.recorded = 0
        # True once an op may have failed and errors were not cleared. A graph copies an argument
        # as a whole if a function refers to it, so such a graph spreads poison further.
        self.is_in_doubt = False

    @initialize(first=settings(), second=settings(), is_serial=st.booleans())
    def open(self, first: Setting, second: Setting, is_serial: bool) -> None:
        self.participants = [
            GraphParticipant(Setting(serial=1)),
            GraphParticipant(first),
            GraphParticipant(replace(second, serial=int(is_serial)), records=True),
        ]

    def agree(self, ask) -> None:
        super().agree(lambda each: _without_names(ask(each)))

    def step(self, push: Push) -> str:
        self.is_in_doubt |= "Fail" in repr(push.step)
        if isinstance(push.step, ClearErrors):
            self.is_in_doubt = False
        return super().step(push)

    @precondition(lambda self: self.recorded < 4)
    @rule(body=BODIES | FAILING, without=WITHOUT, within=WHICH, is_within=st.booleans())
    def record(
        self, body: list[Push], without: tuple[str, ...], within: int, is_within: bool
    ) -> None:
        pushed = [(f"{self.recorded}:{at}", push) for at, push in enumerate(body)]
        inner = within % self.recorded if is_within and self.recorded else None
        if inner is not None and self._is_mixed(body, inner):
            inner = None
        self.recorded += 1
        for each in self.participants:
            each.record(pushed, without, inner)

    def _is_mixed(self, body: list[Push], inner: int) -> bool:
        """True if possible failures on the host meet a device, or a function's slot meets its
        array."""
        first = self.participants[0].recordings[inner]
        has_hold = any(isinstance(push.step, Batch) or _has_hold(push.step) for push in body)
        is_on_host = all(_is_on_host(push.step) for push in body)
        can_fail = first.can_fail or any(isinstance(push.step, Fail) for push in body)
        return has_hold or _holds(first) or (can_fail and not (is_on_host and first.is_on_host))

    @precondition(lambda self: self.recorded)
    @rule(which=WHICH)
    def launch(self, which: int) -> None:
        self._launch(which % self.recorded)

    def _launch(self, which: int) -> None:
        made = self.participants[0].recordings[which]
        if self.is_in_doubt and not made.is_on_host and _copies_arguments(made):
            self.clear_errors()
        self.is_in_doubt |= made.can_fail
        for each in self.participants:
            each.launch(which)

    @precondition(lambda self: self.recorded)
    @rule(which=WHICH, index=ARRAYS, choice=st.integers(0, 2))
    def update(self, which: int, index: int, choice: int) -> None:
        for each in self.participants:
            each.update(which % self.recorded, index, choice)

    @precondition(lambda self: self.recorded)
    @rule(which=WHICH, index=ARRAYS, value=st.integers(1, 9))
    def replay_ten_times_with_fresh_data_and_updates(
        self, which: int, index: int, value: int
    ) -> None:
        which %= self.recorded
        for turn in range(10):
            for each in self.participants:
                each.fill(which, value + turn)
            if turn % 3 == 2:
                self.update(which, index, turn % 2 + 1)
            self._launch(which)
            self.agree(lambda each: each.held(which))

    @precondition(lambda self: self.recorded)
    @rule(which=WHICH)
    def look_at_what_it_works_on(self, which: int) -> None:
        self.agree(lambda each: each.held(which % self.recorded))

    def outcome(self, each: Participant) -> object:
        with cs.use(each.engine):
            each.runner.collect()
            first = raised(lambda: each.engine.waitall(PATIENCE_S))
            each.engine.clear_errors()
            seen = each.runner.outcome(first)
        # Functions that enqueue on a stream are captured, so their calls are counted differently.
        return seen.device, seen.host, seen.versions, seen.results


def _has_hold(step: Step) -> bool:
    """True for a function of the user's that touches device memory."""
    places = (*step.reads, *step.writes)
    is_function = type(step).__name__ in ("Clear", "Direct")
    return is_function and any(isinstance(p, View) and p.space == "d" for p in places)


def _holds(made: Recording) -> bool:
    own = any(_has_hold(push.step) for _, push in made.pushes)
    return own or (made.first is not None and _holds(made.first[0]))


def _without_names(answer: Any) -> Any:
    """The same answer, with failures without names."""
    if isinstance(answer, dict):
        return {key: _without_names(each) for key, each in answer.items()}
    if isinstance(answer, (list, tuple)):
        if tuple(answer[:1]) == ("failed",):
            return ("failed",)
        return [_without_names(each) for each in answer]
    return answer


def _copies_arguments(made: Recording) -> bool:
    """True if it has steps that a graph cannot aim at another array."""
    own = any(isinstance(push.step, Batch) or _has_hold(push.step) for _, push in made.pushes)
    return own or (made.first is not None and _copies_arguments(made.first[0]))
