"""Planted bugs of replay turn its properties red."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.concurrency.interrupt_ground import KERNELS
from helpers.engine_programs.judge import differences
from helpers.engine_programs.loops import eager_replay, looping_programs
from helpers.engine_programs.program_text import from_text
from helpers.engine_programs.strategies import settings
from helpers.repository.searches import begins_with_known
from helpers.repository.subprocesses import run_program
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Flaky

import cudasync as cs
from cudasync import testing
from cudasync.array.kernels import replayed
from cudasync.engine.replay import tape
from cudasync.engine.replay.run import Run
from cudasync.graph import hazards

pytestmark = [pytest.mark.sampled(3), pytest.mark.loses_device]

CHUNK = 20
fixed = hypothesis_settings(
    max_examples=CHUNK,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
_begin = tape.Tape.begin


class _Open(dict):
    """Cells that everybody gets, the last one for good."""

    def setdefault(self, key, value):
        self[key] = value
        return value


class _Always(list):
    """A log that never grows."""

    def __len__(self):
        return 1


def _without_cells(self, step, frame, taken):
    op = _begin(self, step, frame, taken)
    if op is not None:
        self.slots = _Open(self.slots)
        if self.run is not None:
            self.run._slots = self.slots
    return op


def _without_looking(self, step, frame, taken):
    op = _begin(self, step, frame, taken)
    if op is not None and self.step is not self.step.sequence.steps[0]:
        self.entries, self.length = _Always(), 1
    return op


def _unsealed(self, slots):
    return len(slots)


def _of_any(args, *_):
    return lambda given: len(given) == len(args)


def _of_any_number(args, *_):
    def takes(given):
        return len(given) == len(args) and all(
            getattr(one, "region", None) == getattr(other, "region", None)
            and getattr(one, "array", None) is getattr(other, "array", None)
            for one, other in zip(args, given, strict=True)
        )

    return takes


def _all_the_same(self):
    return lambda op: op._enqueue


BUGS = {
    "no cell": [(tape.Tape, "begin", _without_cells)],
    "no look at the end of the log": [(tape.Tape, "begin", _without_looking)],
    "no seal": [(Run, "_seal", _unsealed)],
    "memory is not compared": [(replayed, "taker", _of_any)],
    "numbers are not compared": [(replayed, "taker", _of_any_number)],
    "a run despite poisoned input": [(Run, "_salvage", property(_all_the_same))],
}

_MIXES = "mix d0[4:20:3] d0[4:20:3] 6; mix d0[0:17] d0[0:17] 1; "
_ROUND = f"set d0[1:15] 3; {_MIXES}"
_SEALED = f"d=2 h=1 t=1: {2 * _ROUND}clearerrors; {_ROUND}{_MIXES}clearerrors; set d0[1:15] 3"
_TWO = "mix d0[2:11:4] d0[2:11:4] 2; mix d0[9::-3] d0[9::-3] 2; "
_ALIKE = f"d=1 h=1 t=1: {3 * 'mix d0[1::2] d0[1::2] 1; '}mix d0[1::2] d0[1::2] 6"
# Loops that are known to show a bug.
SHOWN_BY = {
    "no cell": _SEALED,
    "no look at the end of the log": (
        f"d=1 h=2 t=1: {3 * _TWO}mix d0[2:11:4] d0[2:11:4] 2; direct h1[4:9] d0[14:19]; "
        "mix d0[9::-3] d0[9::-3] 2"
    ),
    "no seal": _SEALED,
    "memory is not compared": _ALIKE,
    "numbers are not compared": _ALIKE,
}


def search(bug: str, examples: int) -> list[str]:
    """Run random loops until one of them differs; returns the differences."""
    if begins_with_known() and bug in SHOWN_BY:
        program, setting = from_text(SHOWN_BY[bug])
        found = differs(program, setting)
        if found:
            return found
    for chunk in range(examples // CHUNK):
        try:
            found = search_chunk(chunk)
        except Flaky:
            # Which thread was first decides about it.
            return ["flaky"]
        if found:
            return found
    return []


def search_chunk(chunk: int) -> list[str]:
    found: list[str] = []

    @seed(chunk)
    @fixed
    @given(looping_programs(fails=True, threads=1 + chunk % 2), settings())
    def look(program, setting) -> None:
        if not found:
            found.extend(differs(program, setting))

    look()
    return found


def differs(program, setting) -> list[str]:
    with eager_replay():
        return differences(program, replace(setting, limit=0, replay=1))


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug, monkeypatch):
    for owner, attribute, value in BUGS[bug]:
        monkeypatch.setattr(owner, attribute, value)
    assert search(bug, 400)


CHAIN = """
import numpy as np
from pathlib import Path
from cudasync.engine.replay import sequence
from cudasync.graph import hazards
# A busy machine may suspend the program between any two launches.
sequence.HOLD_S = 1e9
ordered = hazards.ordered

def without_edges(nodes):
    made = ordered(nodes)
    for node in made:
        node.before = ()
    return made

if PLANT:
    hazards.ordered = without_edges
mix = cs.Module.from_file(KERNELS).kernel("mix")
wanted = [np.zeros(8, np.int32), np.ones(8, np.int32)]
with cs.Engine(replay=True) as engine:
    x, y = (cs.array(each) for each in wanted)
    for _ in range(200):
        for i, (to, of) in enumerate([(x, y), (y, x)]):
            mix[1, 8](to, of, np.int32(2), np.uint32(8))
            wanted[i] = 31 * wanted[i] + 2 * wanted[1 - i] + np.arange(8, dtype=np.int32)
    print((x.numpy() == wanted[0]).all(), (y.numpy() == wanted[1]).all())
    print(engine.replay_report())
"""


@pytest.mark.parametrize("planted", [False, True])
def test_a_graph_without_its_edges_is_found(planted):
    """The software GPU runs what has no order in any order."""
    body = CHAIN.replace("PLANT", str(planted)).replace("KERNELS", repr(str(KERNELS)))
    code, printed = run_program(body, CUDASYNC_SOFTGPU_SCHEDULER="seed=5")
    assert code == 0, printed
    assert "replays 2 launches" in printed
    assert ("True True" in printed) is not planted, printed


def test_an_edge_that_a_graph_lacks_is_a_race(monkeypatch):
    """Whatever order the software GPU takes: the checker of races looks at orders, not results."""
    ordered = hazards.ordered

    def without_edges(nodes):
        made = ordered(nodes)
        for node in made:
            node.before = ()
        return made

    def races():
        def run():
            kernel = cs.Module.from_file(KERNELS).kernel("mix")
            with eager_replay(), cs.Engine(replay=True) as engine:
                x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
                for _ in range(30):
                    kernel[1, 8](x, y, np.int32(2), np.uint32(8))
                    kernel[1, 8](y, x, np.int32(2), np.uint32(8))
                engine.waitall()
                assert engine.statistics().graphs

        return [str(each) for each in testing.check(run, kinds=["race"])]

    assert races() == []
    monkeypatch.setattr(hazards, "ordered", without_edges)
    assert races()
