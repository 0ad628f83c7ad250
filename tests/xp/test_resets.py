"""A device reset while a thread makes objects that later operations use.

Objects of an earlier life are made again, and no operation mixes objects of two lives. The thread
is stopped at bytecodes of the making code, and the device is reset meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import Freezer, end_tracing
from helpers.concurrency.freeze_test import sample
from helpers.concurrency.thread_crew import Crew
from helpers.repository.checkout import PACKAGE

import cudasync as cs
from cudasync import xp
from cudasync.array.copies import gather_scatter
from cudasync.array.elementwise.operations import OPERATIONS
from cudasync.array.products import operation as products
from cudasync.array.reductions import operation as reductions
from cudasync.array.scans import operation as scans
from cudasync.array.steps.compilation import kernel_of
from cudasync.array.steps.step_cache import Known

# The number of points tried for each object without --run-slow.
MOST = 12
MAKERS = tuple(
    str(PACKAGE / "array" / each)
    for each in (
        *(f"{room}/plan.py" for room in ("elementwise", "products", "reductions", "scans")),
        *(
            "copies/gather_scatter.py",
            "elementwise/compilation.py",
            "steps/compilation.py",
            "steps/step_cache.py",
        ),
    )
)
PLAIN = 'extern "C" __global__ void plain(int *x) { *x = 1; }'


def is_maker(path: str) -> bool:
    return path in MAKERS


@pytest.fixture
def device() -> Iterator[cs.Device]:
    cs.waitall()
    yield cs.Device(cs.device_count() - 1)
    end_tracing()
    # This clears the errors of a failed test.
    cs.engine().clear_errors()


def plan_for(plans: dict[Any, Any], ask: Callable[[], Any]) -> Any:
    """The plan that the first call of `ask` makes."""
    before = list(plans.values())
    ask()
    (plan,) = (each for each in plans.values() if not any(each is other for other in before))
    return plan


def ones(device: cs.Device, columns: int) -> Any:
    return xp.ones((40, 30), dtype=np.int32, device=device)[:, :columns]


# The dictionary of each kind of plan, and a call that uses it, with shapes that no other test has.
PLANNED: dict[str, tuple[dict[Any, Any], Callable[[cs.Device], Any]]] = {
    "elementwise": (OPERATIONS["add"].plans, lambda device: ones(device, 17) + 4),
    "reduction": (reductions._plans, lambda device: xp.sum(ones(device, 19), axis=0)),
    "scan": (scans._plans, lambda device: xp.cumulative_sum(ones(device, 21), axis=0)),
    "product": (products._plans, lambda device: ones(device, 30)[:23, :] @ ones(device, 23)[:30]),
}


def stopped_at(make: Callable[[], Any], at: int | None, meanwhile: Callable[[], Any]) -> Freezer:
    """Call `make` on a thread that is stopped at its bytecode `at` until `meanwhile` is over."""
    freezer = Freezer(at, is_maker)

    def run() -> None:
        # The call may fail because its objects went with the reset.
        with suppress(cs.CudasyncError), freezer:
            make()

    with Crew() as crew:
        crew.start(run)
        try:
            freezer.settle(may_sleep=False)
            meanwhile()
        finally:
            freezer.release()
    return freezer


def reset_everywhere(
    device: cs.Device,
    make: Callable[[], Any],
    ask: Callable[[cs.Device], Any],
    request: pytest.FixtureRequest,
    most: int = MOST,
) -> None:
    wanted = ask(device).numpy().tolist()
    cs.waitall()
    device.reset()
    points = stopped_at(make, None, lambda: None).points
    assert points > 20
    seen = None if request.config.getoption("--run-slow") else most
    for at in sample(points, seen, int.from_bytes(os.urandom(2))):
        # The thread starts to make the object in this life.
        device.reset()
        freezer = stopped_at(make, at, device.reset)
        for _ in range(2):
            assert ask(device).numpy().tolist() == wanted, f"reset at {freezer.where}, point {at}"
        cs.waitall()


@pytest.mark.parametrize("kind", PLANNED)
def test_a_plan_that_is_made_while_its_device_is_reset_is_of_one_life(kind, device, request):
    plans, ask = PLANNED[kind]
    plan = plan_for(plans, lambda: ask(device))
    reset_everywhere(device, plan._renewed, ask, request)


def test_a_kernel_that_is_loaded_while_its_device_is_reset_is_loaded_again(device, request):
    def make() -> Any:
        return gather_scatter._kernel("gather", device, 4)

    def ask(device: cs.Device) -> Any:
        return gather_scatter.gather(ones(device, 29))

    # The object is made in few bytecodes.
    reset_everywhere(device, make, ask, request, most=30)


def test_steps_that_are_made_while_their_device_is_reset_are_made_again(device, request):
    known: Known[Any] = Known()

    def step() -> Any:
        return known.get("step", device, lambda: kernel_of(PLAIN, "plain", device))

    def ask(device: cs.Device) -> Any:
        assert not step().module.is_closed
        return ones(device, 1)

    reset_everywhere(device, step, ask, request)


@pytest.mark.parametrize("kind", PLANNED)
def test_what_a_thread_is_in_the_middle_of_stays_as_it_is_after_a_reset(kind, device):
    """Otherwise the thread would launch the next life's kernel on memory of the last life."""
    plans, ask = PLANNED[kind]
    plans.clear()
    plan = plan_for(plans, lambda: ask(device))
    cs.waitall()
    before = {name: getattr(plan, name, None) for name in plan.__slots__ if name != "_successor"}
    device.reset()
    ask(device).numpy()
    changed = [name for name, value in before.items() if getattr(plan, name, None) is not value]
    assert changed == []
