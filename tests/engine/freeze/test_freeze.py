"""Suspend any one thread for ever at any bytecode of the engine: all other threads go on.

With --run-slow each of some 25,000 bytecodes is tried, which takes half an hour on a busy machine.
CUDASYNC_FREEZE_PART=3/16 tries every sixteenth of them, from the third on.
"""

from __future__ import annotations

import os

import pytest
from helpers.concurrency import bytecode_freezer
from helpers.concurrency import freeze_device_scenarios as device
from helpers.concurrency import freeze_scenarios as host
from helpers.concurrency import freeze_unheard_scenarios as unheard
from helpers.concurrency.freeze_test import PATIENCE_S, Scenario, count_points, freeze_at, sample

pytestmark = [pytest.mark.sampled(2), pytest.mark.usefixtures("tracing_ends", "replaced_soon")]

# The number of points that are tried in each scenario without --run-slow.
MOST = 25
# This number exceeds the bytecodes of any scenario.
NEVER = 1 << 30

# A scenario with fewer points does next to nothing in the engine.
LEAST = 20

# A round counts the points of a scenario, and tries some of them.
MOST_ROUNDS = 4


def suspend_everywhere(
    scenario: type[Scenario],
    request: pytest.FixtureRequest,
    patience_s: float = PATIENCE_S,
    most: int = MOST,
) -> None:
    seed = int(os.environ.get("CUDASYNC_FREEZE_SEED", "0")) or int.from_bytes(os.urandom(2))
    print(f"CUDASYNC_FREEZE_SEED={seed}")
    part, parts = map(int, os.environ.get("CUDASYNC_FREEZE_PART", "1/1").split("/"))
    # A thread does not reach all points: it runs more bytecodes at one time than at another. If it
    # reaches few, the points are counted and chosen again.
    for more in range(MOST_ROUNDS):
        points, reached = count_points(scenario), 0
        if points <= LEAST:
            continue
        all_of_them = request.config.getoption("--run-slow")
        chosen = sample(points, None if all_of_them else most, seed + more)[part - 1 :: parts]
        reached = sum(freeze_at(scenario, at, patience_s).is_reached for at in chosen)
        line = f"{scenario.__name__}: suspended at {reached} of {points} bytecodes, seed {seed}"
        if parts > 1:
            line += f", part {part} of {parts}"
        request.node.user_properties.append(("explored", line))
        if reached > min(4, len(chosen) // 2):
            return
    raise AssertionError(f"{reached} of {points} points were reached, {MOST_ROUNDS} times")


def scenarios() -> list[type[Scenario]]:
    """The scenarios whose suspended thread may be taken for asleep."""
    rooms = (device, host, unheard)
    known = {each for room in rooms for each in vars(room).values() if isinstance(each, type)}
    return sorted(
        (each for each in known if issubclass(each, Scenario) and each.sleeps),
        key=lambda each: each.__name__,
    )


@pytest.mark.parametrize("scenario", scenarios())
def test_who_is_wrongly_taken_to_be_asleep_costs_no_verdict(scenario, monkeypatch):
    """The same happens on a machine so busy that a thread does nothing for a while."""
    monkeypatch.setattr(bytecode_freezer, "QUIET_S", 0.0)
    freeze_at(scenario, NEVER)


@pytest.mark.parametrize(
    "scenario",
    [
        host.PushesHostOp,
        host.PushesOnArrays,
        host.PushesShortOp,
        host.PushesTraced,
        host.PushesInsideOp,
        host.PushesBatch,
        host.PushesBatchOnArrays,
        device.Launches,
        device.LaunchesBatch,
        device.LaunchesBehindHostOp,
        device.LaunchesPastHostOp,
        device.JoinsRun,
        device.CompletesRun,
    ],
)
def test_a_suspended_push_holds_up_nobody(scenario, request):
    suspend_everywhere(scenario, request)


@pytest.mark.parametrize(
    "scenario",
    [
        host.FinishesHostOp,
        host.FinishesTracedOp,
        device.FinishesDeviceOp,
        device.FinishesRange,
        device.Watches,
        device.CopiesPageable,
    ],
)
def test_a_suspended_completion_holds_up_nobody(scenario, request):
    suspend_everywhere(scenario, request)


@pytest.mark.parametrize(
    "scenario",
    [
        host.Waits,
        host.WaitsForVariable,
        host.WaitsForAll,
        host.RunsWhatItWaitsFor,
        host.Asks,
        device.WaitsForDevice,
    ],
)
def test_a_suspended_wait_holds_up_nobody(scenario, request):
    suspend_everywhere(scenario, request)


@pytest.mark.parametrize("scenario", [host.Closes, host.ClearsErrors])
def test_a_suspended_end_holds_up_nobody(scenario, request):
    suspend_everywhere(scenario, request)


@pytest.mark.parametrize("scenario", [host.RestsAndWakes, host.RestsAndWakesTraced])
def test_a_worker_suspended_on_its_way_to_sleep_holds_up_nobody(scenario, request):
    suspend_everywhere(scenario, request, patience_s=2.0)


def test_a_push_suspended_while_it_starts_a_worker_holds_up_nobody(request):
    suspend_everywhere(host.PushesBehind, request, patience_s=2.0)


@pytest.mark.parametrize(
    "scenario",
    [
        unheard.FallsAsleep,
        unheard.FallsAsleepBesideAnother,
        unheard.FallsAsleepTraced,
        unheard.WatchesForAnother,
        unheard.Pushes,
        unheard.PushesToSleeper,
        unheard.LaunchesAndWaits,
        unheard.Finishes,
        unheard.VisitsAnotherPool,
        unheard.EndsDeviceOp,
    ],
)
def test_what_is_pushed_runs_though_nobody_waits(scenario, request):
    """A thread is suspended anywhere, and no other thread ever waits for an op."""
    # Each point waits for the watchdog, so there are fewer points.
    suspend_everywhere(scenario, request, most=MOST // 3)
