"""The schedules of a pipeline: complete, in order, and as short and frugal as they promise."""

from __future__ import annotations

import pytest

from cudasync.parallel import schedules
from cudasync.parallel.schedules import SCHEDULES, Step, most_kept

SHAPES = [(stages, count) for stages in (1, 2, 3, 5) for count in (1, 2, 4, 9)]


def ticks(name, stages, count):
    """The duration if each step takes one tick and a send takes none; None if it never ends."""
    left = [SCHEDULES[name](stage, stages, count) for stage in range(stages)]
    done, passed = set(), 0
    while any(left):
        now = []
        for stage, steps in enumerate(left):
            if not steps:
                continue
            kind, number = steps[0]
            source = stage - 1 if kind == "forward" else stage + 1
            needs = [] if source in (-1, stages) else [(source, Step(kind, number))]
            needs += [(stage, Step("forward", number))] if kind == "backward" else []
            if done.issuperset(needs):
                now.append((stage, steps.pop(0)))
        if not now:
            return None
        done.update(now)
        passed += 1
    return passed


@pytest.mark.parametrize(("stages", "count"), SHAPES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_stage_does_everything_once_forwards_before_backwards(name, stages, count):
    for stage in range(stages):
        steps = SCHEDULES[name](stage, stages, count)
        assert sorted(steps) == sorted(
            Step(kind, number) for kind in ("forward", "backward") for number in range(count)
        )
        for number in range(count):
            places = [steps.index(Step(kind, number)) for kind in ("forward", "backward")]
            assert places == sorted(places)


@pytest.mark.parametrize(("stages", "count"), SHAPES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_batch_takes_no_more_ticks_than_there_have_to_be(name, stages, count):
    """The last stage waits for stages - 1 forwards, the first for as many backwards."""
    assert ticks(name, stages, count) == 2 * (count + stages - 1)


@pytest.mark.parametrize(("stages", "count"), SHAPES)
def test_what_a_stage_keeps_is_bounded(stages, count):
    for stage in range(stages):
        assert most_kept(SCHEDULES["gpipe"](stage, stages, count)) == count
        kept = most_kept(SCHEDULES["1f1b"](stage, stages, count))
        assert kept == min(stages - stage, count)


def test_a_schedule_that_waits_in_a_ring_is_found(monkeypatch):
    """The planted bug: the first stage needs a backward before its forward."""
    monkeypatch.setitem(
        schedules.SCHEDULES, "1f1b", lambda stage, stages, count: schedules.gpipe(0, 1, count)[::-1]
    )
    assert ticks("1f1b", 2, 2) is None
