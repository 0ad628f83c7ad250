"""Runs of a program as a graph: recorded once, launched several times, compared with the model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.engine_programs.judge import reset_devices
from helpers.engine_programs.op_functions import PATIENCE_S
from helpers.engine_programs.reference_model import Model, initial
from helpers.engine_programs.runner import Run, Runner, open_engine
from helpers.engine_programs.steps import (
    Batch,
    ClearErrors,
    Fail,
    Fetch,
    Hold,
    Nest,
    Program,
    Read,
    Renew,
    Setting,
    Step,
    Wait,
    WaitAll,
)

import cudasync as cs

if TYPE_CHECKING:
    from collections.abc import Sequence

# Steps that ask for a value, make a new array, or would not end.
_NOT_RECORDED = (ClearErrors, Fetch, Hold, Nest, Read, Renew, Wait, WaitAll)


def recordable(program: Program) -> Program:
    """The part of `program` that can be recorded."""
    return replace(program, pushes=tuple(p for p in program.pushes if _can_be(p.step)))


def _can_be(step: Step) -> bool:
    if isinstance(step, Batch):
        return all(_can_be(each) for each in step.steps)
    if isinstance(step, Fail):
        # A failing device function fails when the graph is instantiated.
        return not step.on_device
    return not isinstance(step, _NOT_RECORDED)


class Recorded(Runner):
    """The run of a program as a graph."""

    def launched(
        self,
        times: int,
        beside: bool,
        on_stream: bool,
        children: Sequence[Any] = (),
        without: tuple[str, ...] = (),
        devices_too: bool = False,
    ) -> tuple[Run, cs.Executable, list[list[bool]]]:
        """Record the program and launch it `times` times.

        Returns the outcome, the executable, and which elements of host arrays and tokens were
        poisoned. With `beside`, the program is also pushed eagerly before the last launch. With
        `on_stream`, launches go to a foreign stream without other work. With `children`, runs of
        pushes are graphs of their own, launched within the outer one.
        """
        with cs.use(self.engine):
            outside = self.engine
            with cs.graph() as recorded:
                self._record(0, children)
            self.engine = outside
            self.prepared.clear()
            self.ops.clear()
            executable = recorded.instantiate(without=without)
            for each in range(times):
                if beside and each == times - 1:
                    for number, push in enumerate(self.program.pushes):
                        self.push(str(number), push)
                # A launch on a stream cannot carry poison, so it raises at once.
                with suppress(cs.OpError):
                    executable.launch(cs.Stream() if on_stream else None)
            with suppress(cs.OpError):
                self.engine.waitall(PATIENCE_S)
            wrong = self.poisoned(devices_too)
            self.engine.clear_errors()
            self.ops.clear()
            return self.outcome(), executable, wrong

    def _record(self, first: int, children: Sequence[Any]) -> None:
        """Record the pushes from `first` on, in the runs that `children` describes: see `runs`."""
        self.engine = cs.engine()
        numbered = list(enumerate(self.program.pushes))
        for count, (is_child, is_executable, is_nested) in children:
            if not is_child:
                self._push_all(numbered[first : first + count])
            else:
                with cs.graph() as inner:
                    self.engine = cs.engine()
                    self._push_all(numbered[first : first + count])
                if is_nested:
                    with cs.graph() as between:
                        inner.launch()
                    inner = between
                (inner.instantiate() if is_executable else inner).launch()
                self.engine = cs.engine()
            first += count
        self._push_all(numbered[first:])

    def _push_all(self, numbered: Sequence[tuple[int, Any]]) -> None:
        for number, push in numbered:
            self.push(str(number), push)

    def rebound(self, turns: list[int]) -> list[list[list[list[int]]]]:
        """Record the program on slots, and launch it with alternating sets of arrays. Returns the
        final content of each set."""
        outside = self.engine
        with cs.use(outside):
            sets = [self.arrays, [cs.array(a.numpy() + 7, device=a.device) for a in self.arrays]]
            with cs.graph() as recorded:
                names = [f"d{i}" for i in range(len(self.arrays))]
                self.arrays = list(map(recorded.argument, names, self.arrays))
                self.engine = cs.engine()
                for number, push in enumerate(self.program.pushes):
                    self.push(str(number), push)
            self.engine, self.arrays = outside, sets[0]
            self.prepared.clear()
            self.ops.clear()
            with recorded.instantiate() as executable:
                for turn in turns:
                    executable.update(**dict(zip(names, sets[turn], strict=True)))
                    executable.launch()
                outside.waitall(PATIENCE_S)
            return [[array.numpy().tolist() for array in each] for each in sets]

    def poisoned(self, devices_too: bool) -> list[list[bool]]:
        """For each element of the host arrays, and for each token: whether it is poisoned.

        Arrays of devices come behind those of the host if `devices_too`.
        """
        arrays = [*self.host, *(self.arrays if devices_too else ())]
        places = [[array[i : i + 1] for i in range(len(array))] for array in arrays]
        places.append(list(self.tokens))
        asked = [[self.engine.push(_nothing, reads=each) for each in row] for row in places]
        return [[op.exception(PATIENCE_S) is not None for op in row] for row in asked]


def graph_differences(
    program: Program,
    setting: Setting,
    times: int = 2,
    *,
    beside: bool = False,
    on_stream: bool = False,
    without: tuple[str, ...] = (),
    children: Sequence[Any] = (),
    devices_too: bool = False,
) -> list[str]:
    """The differences between a graph and as many serial runs of its program.

    Poison of device arrays is compared if `devices_too`.
    """
    try:
        with open_engine(setting) as engine:
            launched = Recorded(program, engine, holds=False).launched(
                times, beside, on_stream, children, without, devices_too
            )
            run, executable, poisoned = launched
            executable.close()
    except (cs.CudasyncError, TimeoutError) as error:
        reset_devices()
        return [f"{type(error).__name__}: {error}"]
    often = replace(program, pushes=program.pushes * (times + beside))
    model = Model(often)
    expected = model.run(list(often.by_id()))
    # A note writes the number of its step, which is the same in each launch.
    for outcome in (expected, run):
        count = len(program.pushes)
        outcome.logs = [[_first_id(each, count) for each in log] for log in outcome.logs]
    found = []
    places = [("h", index) for index in range(often.hosts)]
    places += [("d", index) for index in range(len(often.devices)) if devices_too]
    blames = [*(model.blame[place] for place in places), model.token_blame]
    blamed = [[each is not None for each in row] for row in blames]
    if blamed != poisoned:
        found.append(f"poisoned is\n    {poisoned}, not\n    {blamed}")
    for name in ("device", "host", "logs"):
        pairs = zip(getattr(expected, name), getattr(run, name), strict=True)
        for index, (wanted, got) in enumerate(pairs):
            if wanted != got:
                found.append(f"{name} {index} is\n    {got}, not\n    {wanted}")
    return found


def rebound_differences(program: Program, setting: Setting, turns: list[int]) -> list[str]:
    """The differences of a graph when its arrays are replaced at each turn."""
    try:
        with open_engine(setting) as engine:
            runner = Recorded(program, engine, holds=False)
            sets = runner.rebound(turns)
            host = runner.outcome().host
    except (cs.CudasyncError, TimeoutError) as error:
        reset_devices()
        return [f"{type(error).__name__}: {error}"]
    model = Model(program)
    own = [initial("d", index) for index in range(len(program.devices))]
    memory = [own, [each + np.int32(7) for each in own]]
    expected = None
    for turn in turns:
        model.memory.update({("d", i): each for i, each in enumerate(memory[turn])})
        expected = model.run(list(program.by_id()))
    assert expected is not None
    found = []
    wanted = [[each.tolist() for each in arrays] for arrays in memory]
    for what, one, other in (("arrays", wanted, sets), ("host", expected.host, host)):
        if one != other:
            found.append(f"{what} are\n    {other}, not\n    {one}")
    return found


def _nothing() -> None:
    """An op that only asks for its reads."""


def _first_id(id_: str, count: int) -> str:
    number, *inner = id_.split(".")
    return ".".join([str(int(number) % count), *inner])
