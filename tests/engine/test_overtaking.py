"""Planners that are suspended and overtaken, and then go on, leave the plan that one makes.

Three threads plan one log. The first is suspended, the second takes over and is suspended, the
first goes on, the third takes over, and the second goes on. Where they are suspended is drawn.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable

import pytest
from helpers.freeze import is_engine
from helpers.freezer import PATIENCE_S, Freezer
from helpers.planning import PROGRAM, Rig, expected, planned

from cudasync.engine.log.combiner import Combiner

pytestmark = pytest.mark.usefixtures("tracing_ends")

PAIRS = 150


def start(rig: Rig, freezer: Freezer) -> threading.Thread:
    def plan() -> None:
        with freezer:
            rig.planner.plan()

    thread = threading.Thread(target=plan, daemon=True)
    thread.start()
    freezer.settle(may_sleep=False)
    return thread


def overtake(
    first_at: int | None, second_at: int | None, planner: Callable[[], Combiner] = Combiner
) -> tuple[Freezer, Freezer]:
    """One run; raises AssertionError when the plan is not what one thread finds."""
    rig = Rig()
    rig.planner = planner()
    rig.log(PROGRAM)
    first, second = Freezer(first_at, is_engine), Freezer(second_at, is_engine)
    one = start(rig, first)
    other = start(rig, second)
    first.release()
    one.join(PATIENCE_S)
    rig.planner.plan()
    second.release()
    other.join(PATIENCE_S)
    rig.planner.plan()
    where = f"overtake({first_at}, {second_at}): at {first.where}; at {second.where}"
    assert planned(rig) == expected(PROGRAM), where
    rig.plan_and_run()
    assert "".join(rig.ran) == "".join(PROGRAM), where
    return first, second


def test_overtaken_planners_leave_one_plan(request):
    seed = int(os.environ.get("CUDASYNC_FREEZE_SEED", "0")) or int.from_bytes(os.urandom(2))
    print(f"CUDASYNC_FREEZE_SEED={seed}")
    draw = random.Random(seed)
    points = overtake(None, None)[0].points
    pairs = PAIRS * (100 if request.config.getoption("--run-slow") else 1)
    for _ in range(pairs):
        at = draw.randint(1, points)
        # The second does what the first left, so most of its points are there at the start.
        overtake(at, draw.randint(1, max(100, points - at)))
    line = f"overtaken planners: {pairs} pairs of {points} bytecodes, seed {seed}"
    request.node.user_properties.append(("explored", line))


class Clears(Combiner):
    """Takes every entry out of the log that it has done with, also when it has been overtaken."""

    def __init__(self) -> None:
        super().__init__()
        self._entries = self.log.tail.entries

    def enter(self, entry: object, number: int, epoch: int) -> None:
        super().enter(entry, number, epoch)
        self._entries[number - 1] = None


def fails(first_at: int, second_at: int) -> bool:
    try:
        overtake(first_at, second_at, Clears)
    except AssertionError:
        return True
    return False


def test_a_planner_that_clears_what_its_successors_need_is_found():
    draw, points = random.Random(1), overtake(None, None)[0].points
    assert any(fails(draw.randint(1, points), draw.randint(1, 1000)) for _ in range(1000))


@pytest.mark.parametrize("seed", range(3))
def test_what_must_come_before_is_what_hazards_say(seed):
    """The oracle of these tests, held against an op by op reckoning."""
    draw = random.Random(seed)
    names = "abcdefgh"
    program = {
        name: "".join(draw.sample("xyz", draw.randint(0, 2))) + ">" + draw.choice("xyz")
        for name in names
    }
    rig = Rig()
    rig.log(program)
    rig.planner.plan()
    assert planned(rig) == expected(program)


def test_an_entry_whose_drop_pushes_and_plans_is_followed_in_order():
    """Letting go of an entry runs a finaliser that appends an op and plans, on this very thread."""
    rig = Rig()

    class Dropped:
        def __del__(self) -> None:
            rig.log({"second": ">x"})
            rig.planner.plan()

    rig.planner.log.append(Dropped())
    rig.log({"first": ">x"})
    rig.planner.plan()
    rig.log({"reader": "x>"})
    rig.planner.plan()
    before = rig.ops["reader"]._node.gate.before
    assert [op.name for op in before] == ["second"]
