"""Superseded planners that go on leave the same plan as a single planner.

Three threads plan one log. The first is suspended, the second takes over and is suspended, the
first goes on, the third takes over, and the second goes on. The points of suspension are random.
"""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable, Iterator

import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer
from helpers.concurrency.freeze_test import is_engine, sample
from helpers.concurrency.planner_rig import PROGRAM, Rig, expected, planned

import cudasync as cs
from cudasync.atomic import offer
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER, Combiner
from cudasync.engine.log.epoch import Epoch
from cudasync.engine.log.node import JoinGate, Node
from cudasync.engine.op import Op, claim
from cudasync.engine.waiters import PIECE

pytestmark = pytest.mark.usefixtures("tracing_ends")

PAIRS = 150
SINGLES = 100


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
    """One run; raises AssertionError if the plan differs from that of one thread."""
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
        # The second thread does the first one's remaining work, so most of its points are at the
        # start.
        overtake(at, draw.randint(1, max(100, points - at)))
    line = f"overtaken planners: {pairs} pairs of {points} bytecodes, seed {seed}"
    request.node.user_properties.append(("explored", line))


def run_planned(rig: Rig) -> None:
    """Another planner takes over, and the ops run."""
    rig.plan_and_run()


def run_unplanned(rig: Rig) -> None:
    """The ops run in the order of the log, as on a worker that was superseded inside an op."""
    for op in rig.ops.values():
        assert claim(op, object()) is not None
        rig.ran.append(op.name)
        nodes.finish(op)


def left_alive(run: Callable[[Rig], None], at: int | None) -> tuple[int, Freezer]:
    """How many ops, nodes and plans remain without the garbage collector, once all ops have ended.

    A planner is suspended, the ops run, and the planner goes on.
    """
    before = count_planned()
    rig = Rig()
    rig.log(PROGRAM)
    freezer = Freezer(at, is_engine)
    one = start(rig, freezer)
    run(rig)
    freezer.release()
    one.join(PATIENCE_S)
    # The planner may take an op for ready again.
    rig.run()
    assert sorted(rig.ran) == sorted(PROGRAM)
    # A variable remembers its last writer.
    for variable in rig.variables.values():
        variable._histories.clear()
    del rig
    return count_planned() - before, freezer


def count_planned() -> int:
    return sum(isinstance(each, Op | Node | JoinGate) for each in gc.get_objects())


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left_somewhere(run: Callable[[Rig], None], singles: int) -> str | None:
    points = left_alive(run, None)[1].points
    for at in sample(points, singles, seed=1):
        left, freezer = left_alive(run, at)
        if left:
            return f"left_alive({at}): {left}, at {freezer.where}"
    return None


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("run", [run_planned, run_unplanned])
def test_what_a_planner_made_that_comes_late_goes_without_the_garbage_collector(run, request):
    is_long = request.config.getoption("--run-slow")
    assert left_somewhere(run, 10_000 if is_long else SINGLES) is None


class Clears(Combiner):
    """The planted bug: even a superseded combiner removes its finished entries from the log."""

    def __init__(self) -> None:
        super().__init__()
        self._entries = self.log.tail.entries

    def enter_op(self, op: Op, number: int, epoch: int) -> None:
        super().enter_op(op, number, epoch)
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
    """The oracle of these tests, compared with a plain op-by-op calculation."""
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
    """The release of an entry runs a finaliser, which appends an op and plans on this thread."""
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


def test_a_planner_goes_on_whose_successor_is_suspended_before_it_knows_its_place():
    """Deep in a segment: a piece of the log from where the successor seems to be is planned."""
    x, engine = cs.Var("x"), cs.Engine()
    for _ in range(2 * PIECE):
        engine.push(int, writes=[x])
    # Then no worker plans the fence below, so its waiter does.
    engine.close()
    mine = COMBINER.take()
    offer(mine.successor, Epoch(mine.number + 1, mine, mine.segment, mine.left))
    with cs.use(engine):
        x.wait(PATIENCE_S)
