"""Where rounds of launches begin and end, how long runs are, and what a launch must equal."""

from __future__ import annotations

import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S
from helpers.driver.call_counts import counted_calls
from helpers.engine_programs.repeated_launches import LIMIT, Loop

from cudasync.engine.replay import sequence
from cudasync.engine.replay.run import JoinedLaunch
from cudasync.engine.replay.sequence import UNIT

pytestmark = pytest.mark.usefixtures("no_launch_is_too_slow")


def test_two_loops_in_turn_are_both_known(mix, engine):
    first, second = Loop(mix), Loop(mix)
    joined = []
    for turn in range(12):
        for loop in (first, second):
            joined = [isinstance(loop(), JoinedLaunch) for _ in range(3 * UNIT)]
            engine.waitall(PATIENCE_S)
            if turn > 2:
                # The launch that shows the change of the loop is pushed.
                assert sum(joined) >= 3 * UNIT - 2
    first.check()
    second.check()


def test_a_round_begins_behind_the_wait(mix, engine):
    loops = [Loop(mix) for _ in range(5)]
    for _ in range(LIMIT):
        for loop in loops:
            loop()
        engine.waitall(PATIENCE_S)
    with counted_calls() as calls:
        for loop in loops:
            loop()
        engine.waitall(PATIENCE_S)
    assert [calls[name] for name in ("cuGraphLaunch", "cuLaunchKernel")] == [1, 0]


def test_a_round_turns_to_begin_behind_the_waits_that_come_later(mix, engine):
    loops = [Loop(mix) for _ in range(5)]
    for _ in range(LIMIT):
        for loop in loops:
            loop()
    # The round that was found begins anywhere: these launches move the waits in it.
    for loop in loops[:3]:
        loop()
    for _ in range(10):
        for loop in (*loops[3:], *loops[:3]):
            loop()
        engine.waitall(PATIENCE_S)
    with counted_calls() as calls:
        for loop in (*loops[3:], *loops[:3]):
            assert isinstance(loop(), JoinedLaunch)
        engine.waitall(PATIENCE_S)
    assert [calls[name] for name in ("cuGraphLaunch", "cuLaunchKernel")] == [1, 0]
    for loop in loops:
        loop.check()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("period", [1, 3, 5, 7])
@pytest.mark.parametrize("most", [1, 2, 4, 8, 16, 31])
def test_a_run_is_no_longer_than_what_a_program_launches_in_a_while(
    mix, engine, monkeypatch, most, period
):
    """The device waits for so many launches, not for all of the unit."""
    monkeypatch.setattr(sequence, "HOLD_S", most * 1e6)
    note = sequence.RepeatedCalls.note

    def at_this_pace(self, count, elapsed_s, *, is_whole):
        note(self, count, count * 1e6, is_whole=is_whole)
        self.slow = 0

    monkeypatch.setattr(sequence.RepeatedCalls, "note", at_this_pace)
    loops = [Loop(mix) for _ in range(period)]
    for _ in range(LIMIT):
        for loop in loops:
            loop()
    # Stretches that came often are graphs by now.
    for _ in range(10 * UNIT):
        for loop in loops:
            loop()
    engine.waitall(PATIENCE_S)
    before = engine.statistics()
    made = 4 * UNIT
    for _ in range(made):
        for loop in loops:
            assert isinstance(loop(), JoinedLaunch)
    engine.waitall(PATIENCE_S)
    after = engine.statistics()
    runs, launches = after.runs - before.runs, after.matched - before.matched
    assert launches == made * period
    assert launches / runs <= most
    assert launches / runs > most / 4
    # A round of three in runs of two has one single launch, which is no graph.
    assert after.graphs - before.graphs >= (0.4 * runs if most > 1 else 0)
    for loop in loops:
        loop.check()


def test_a_slow_program_is_not_kept_waiting(mix, engine, monkeypatch):
    """Each launch would wait for the next, which comes late."""
    monkeypatch.setattr(sequence, "HOLD_S", 0.0)
    loop = Loop(mix)
    for _ in range(LIMIT):
        loop()
    engine.waitall(PATIENCE_S)
    assert not isinstance(loop(), JoinedLaunch)
    assert "takes long" in engine.replay_report()
    loop.check()


class AnyPlace(int):
    """A place in code that equals every place."""

    __hash__ = int.__hash__

    def __eq__(self, other):
        return True


def lines_said(loop, engine):
    """What ops say of their line, if a loop of launches is followed by the same from elsewhere."""

    def launch(elsewhere):
        loop.wanted = 31 * loop.wanted + 2 * loop.index + loop.index
        if elsewhere:
            return loop.mix[1, 8](loop.x, loop.y, 2, 8)
        return loop.mix[1, 8](loop.x, loop.y, 2, 8)

    for _ in range(LIMIT):
        launch(elsewhere=False)
    said = [launch(elsewhere) for elsewhere in (False, True)]
    assert isinstance(said[0], JoinedLaunch)
    lines = [int(each.push_site.rpartition(":")[2]) for each in said]
    engine.waitall(PATIENCE_S)
    loop.check()
    return [line - launch.__code__.co_firstlineno for line in lines]


def test_the_same_launch_from_another_line_says_its_own_line(loop, engine):
    assert lines_said(loop, engine) == [4, 3]


def test_a_line_that_is_not_compared_is_found(loop, engine, monkeypatch):
    made = sequence.RepeatedCalls._run

    def on_any_line(self, first, calls):
        steps = made(self, first, calls)
        for step in steps:
            step.at = AnyPlace(step.at)
        return steps

    monkeypatch.setattr(sequence.RepeatedCalls, "_run", on_any_line)
    assert lines_said(loop, engine) == [4, 4]
