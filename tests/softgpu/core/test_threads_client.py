"""Many threads call the driver at once, each on its own data, and compute exact results."""

from __future__ import annotations

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.driver.driver_process import run_driver
from helpers.driver.thread_client import Client

THREADS = 8


@pytest.mark.parametrize("seed", [1, 2])
def test_threads_that_do_all_there_is_get_exact_answers_and_leave_nothing(context, seed):
    free = ok(driver.cuMemGetInfo())[0]
    assert Client(seed).run(THREADS, lambda rounds: rounds < 3) >= 2 * 3 * THREADS
    ok(driver.cuCtxSynchronize())
    assert ok(driver.cuMemGetInfo())[0] == free


@pytest.mark.parametrize("scheduler", ["seed=7", "threaded"])
def test_they_do_so_in_whatever_order_commands_run(scheduler):
    program = f"""
    from helpers.driver.thread_client import Client
    create_context()
    print(Client(3).run({THREADS}, lambda rounds: rounds < 2) >= {2 * 2 * THREADS})
    """
    assert run_driver(program, CUDASYNC_SOFTGPU_SCHEDULER=scheduler) == "True\n"
