"""A reference to an old epoch or segment of the log keeps no later objects alive.

Each epoch refers to the next one, because threads look for the latest one through it. A frame in an
exception or in a suspended thread also keeps this reference.
"""

from __future__ import annotations

import pytest
from helpers.concurrency.planner_rig import Rig
from helpers.repository.reachability import kept_by
from helpers.repository.subprocesses import assert_runs_clean

from cudasync.atomic import Segment
from cudasync.engine.hazards.interval_map import Region
from cudasync.engine.log import combiner as combiners
from cudasync.engine.log import epoch as epochs
from cudasync.engine.log.combiner import Combiner
from cudasync.engine.log.entries import Forget
from cudasync.engine.log.epoch import Epoch

# These limits hold for any number of takeovers.
FEW_EPOCHS = 100
FEW_SEGMENTS = 6
NOTHING = Region(0, 0)


def take_over(combiner: Combiner, times: int) -> None:
    """Take over as other threads would, each of which plans an entry."""
    for _ in range(times):
        combiner.log.append(Forget(NOTHING))
        combiner.epoch = epochs.succeed(combiner.epoch)
        combiner.plan()


def idle(combiner: Combiner) -> object:
    return combiner.epoch


def in_an_entry(combiner: Combiner) -> object:
    mine = combiner.epoch
    mine.started = mine.done or 0
    return mine


def on_its_way_in(combiner: Combiner) -> object:
    """A successor that has won the cell, and gone no further."""
    old = combiner.epoch
    new = Epoch(old.number + 1, old, old.segment, old.left)
    old.successor.append(new)
    return new


def segment(combiner: Combiner) -> object:
    return combiner.log.tail


KEEPERS = [idle, in_an_entry, on_its_way_in, segment]


def kept(keeper, before: int) -> tuple[int, int]:
    """How many epochs and segments `keeper`'s object keeps, if taken after `before` takeovers."""
    combiner = Rig().planner
    take_over(combiner, before)
    old = keeper(combiner)
    take_over(combiner, 300)
    return kept_by(old, kind=Epoch), kept_by(old, kind=Segment)


@pytest.fixture(autouse=True)
def short_segments(monkeypatch):
    monkeypatch.setattr(combiners, "SEGMENT", 7)


@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_is_old_keeps_few_of_what_came_after_it(keeper):
    for before in range(70):
        found = kept(keeper, before)
        assert found[0] < FEW_EPOCHS, f"epochs, after {before} takeovers"
        assert found[1] < FEW_SEGMENTS, f"segments, after {before} takeovers"


@pytest.mark.parametrize("keeper", KEEPERS)
def test_epochs_that_are_not_led_past_what_lies_between_are_found(keeper, monkeypatch):
    monkeypatch.setattr(epochs, "_shorten", lambda latest: None)
    found = kept(keeper, 5)
    assert found[0] > FEW_EPOCHS or found[1] > FEW_SEGMENTS


@pytest.mark.parametrize("where", ["enter_op", "reach"])
def test_a_ctrl_c_that_is_kept_keeps_nothing_of_what_is_pushed_after_it(where):
    """A prompt and a notebook keep Ctrl-C, with the frames of the push that it interrupted.

    The test has its own process, because objects that an earlier test left can refer to more.
    """
    assert_runs_clean(
        f"""
        import gc
        from concurrent.futures import ThreadPoolExecutor
        from cudasync.atomic import Segment
        from cudasync.engine.log.combiner import COMBINER, SEGMENT, Combiner
        from cudasync.engine.log.epoch import Epoch

        usual, kept = Combiner.{where}, []

        def interrupted(self, op, *more):
            if op.name == "interrupted" and not kept:
                raise KeyboardInterrupt
            return usual(self, op, *more)

        with cs.Engine(workers=2) as engine, ThreadPoolExecutor(1) as planner:
            # Who pushes is not the combiner, which is not in the middle of an entry.
            engine.waitall()
            planner.submit(COMBINER.take).result()
            Combiner.{where} = interrupted
            try:
                engine.push(lambda stream: None, device=0, priority=1, name="interrupted")
            except KeyboardInterrupt as error:
                kept.append(error)
            assert kept
            Combiner.{where} = usual
            for _ in range(400):
                for _ in range(SEGMENT // 25):
                    engine.push(int)
                engine.push(lambda stream: None, device=0).wait()
                planner.submit(COMBINER.take).result()
            # Without a GIL what a thread has made, and others let go of, goes once that thread runs
            # again, or now.
            gc.collect()
            left = [type(each) for each in gc.get_objects() if isinstance(each, Segment | Epoch)]
        assert left.count(Segment) < {FEW_SEGMENTS}, left.count(Segment)
        assert left.count(Epoch) < {FEW_EPOCHS}, left.count(Epoch)
        """,
        deadline_s=60,
    )
