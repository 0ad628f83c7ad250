"""One machine drives the serial engine and others, call by call; they must always agree.

Random programs are judged at their end. Here every answer is compared at once: an op's result, its
failure, the error of a wait, an array's content.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from helpers.engine_programs.answers import raised, result_of
from helpers.engine_programs.judge import replay_line
from helpers.engine_programs.op_functions import PATIENCE_S
from helpers.engine_programs.reference_model import failed
from helpers.engine_programs.runner import Runner, open_engine
from helpers.engine_programs.steps import (
    LENGTH,
    ClearErrors,
    Program,
    Push,
    Renew,
    Setting,
    View,
    WaitAll,
)
from helpers.engine_programs.strategies import Room, pushes, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import cudasync as cs

ROOM = Room((0, 0, 1), 2, 2)
_OPS = ("mix", "mix", "host mix", "set", "copy", "copy", "clear", "note", "direct", "fail", "batch")
OPS = pushes(ROOM, (*_OPS, "hold"), True, 1)
NESTS = pushes(ROOM, ("nest",), True, 1)
READS = pushes(ROOM, ("read", "fetch"), True, 1)
PLACES = pushes(ROOM, ("wait",), True, 1)
ARRAYS = st.integers(0, len(ROOM.devices) - 1)


@dataclass
class Participant:
    """One engine and its run."""

    setting: Setting
    engine: cs.Engine = field(init=False)
    runner: Runner = field(init=False)
    # Views that stay, whatever happens to the array they were made of.
    kept: list[cs.Array] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.engine = open_engine(self.setting)
        program = Program(ROOM.devices, ROOM.hosts, ROOM.tokens, ())
        self.runner = Runner(program, self.engine, holds=self.setting.holds)

    def push(self, id_: str, push: Push) -> object:
        """Do a step, and return the answer that is known at once."""
        with cs.use(self.engine):
            self.runner.push(id_, push)
        return self.runner.results.get(id_)


class Agreement(RuleBasedStateMachine):
    """Each rule makes the same call on every participant, and compares the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.participants: list[Participant] = []
        self.pushed: list[Push] = []
        self.kept = 0

    @initialize(first=settings(), second=settings())
    def open(self, first: Setting, second: Setting) -> None:
        self.participants = [Participant(s) for s in (Setting(serial=1), first, second)]

    def agree(self, ask) -> None:
        """All participants must give the same answer to `ask(participant)`."""
        wanted, *answers = [ask(each) for each in self.participants]
        for participant, got in zip(self.participants[1:], answers, strict=True):
            if got != wanted:
                # Kept views are not steps of a program; Hypothesis reports them.
                program = Program(ROOM.devices, ROOM.hosts, ROOM.tokens, tuple(self.pushed))
                line = replay_line(program, participant.setting)
                raise AssertionError(f"{got}, not {wanted}\n{line}")

    def step(self, push: Push) -> str:
        id_ = str(len(self.pushed))
        self.pushed.append(push)
        self.agree(lambda each: each.push(id_, push))
        return id_

    @rule(push=OPS)
    def push_an_op(self, push: Push) -> None:
        self.step(push)

    @rule(push=NESTS)
    def push_an_op_that_pushes(self, push: Push) -> None:
        id_ = self.step(push)
        # Wait, so that the pushed ops have a defined place in the order.
        self.agree(lambda each: self.result(each, id_))

    @rule(push=READS)
    def read(self, push: Push) -> None:
        self.step(push)

    @rule(push=PLACES)
    def wait_for_a_place(self, push: Push) -> None:
        self.step(push)

    @rule()
    def wait_for_all(self) -> None:
        self.step(Push(WaitAll()))

    @rule()
    def clear_errors(self) -> None:
        self.step(Push(ClearErrors()))

    @rule(index=ARRAYS, value=st.integers(0, 99))
    def renew_an_array(self, index: int, value: int) -> None:
        self.step(Push(Renew(index, value)))

    @precondition(lambda self: self.ops)
    @rule(data=st.data())
    def ask_an_op(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.ops)))
        self.agree(lambda each: self.result(each, id_))
        self.agree(lambda each: each.runner.ops[id_].done())
        self.agree(lambda each: raised(lambda: each.runner.ops[id_].wait(PATIENCE_S)))

    @rule(index=ARRAYS, start=st.integers(0, 9), step=st.sampled_from([1, 2, -1]))
    def keep_a_view_of_a_view(self, index: int, start: int, step: int) -> None:
        self.kept += 1
        whole = View("d", index, 0, LENGTH)
        for each in self.participants:
            each.kept.append(each.runner.view(whole)[start : start + 12][2:9][::step])

    @precondition(lambda self: self.kept)
    @rule(which=st.integers(0, 9), factor=st.integers(1, 9))
    def use_a_kept_view(self, which: int, factor: int) -> None:
        which %= self.kept

        def mix(each: Participant) -> object:
            view = cs.strided(each.kept[which])
            step = view.strides[0] // view.dtype.itemsize
            kernel = each.runner.kernels["mix"]
            with cs.use(each.engine):
                kernel[1, 32](view, view, factor, np.uint32(len(view)), step, step, name="kept")
                each.runner.release()
                try:
                    return view.numpy().tolist()
                except cs.OpError as error:
                    return failed(error.op)

        self.agree(mix)

    @invariant()
    def versions_agree(self) -> None:
        if self.participants:
            self.agree(lambda each: [token.version for token in each.runner.tokens])

    def teardown(self) -> None:
        try:
            self.agree(self.outcome)
        finally:
            for each in self.participants:
                each.runner.release()
                each.engine.close()

    @property
    def ops(self) -> set[str]:
        return set(self.participants[0].runner.ops) if self.participants else set()

    def result(self, each: Participant, id_: str) -> object:
        each.runner.release()
        return result_of(each.runner.ops[id_])

    def outcome(self, each: Participant) -> object:
        with cs.use(each.engine):
            each.runner.collect()
            first = raised(lambda: each.engine.waitall(PATIENCE_S))
            each.engine.clear_errors()
            seen = each.runner.outcome(first)
        return seen.device, seen.host, seen.logs, seen.versions, seen.results, seen.ran, seen.first
