"""Programs that nvcc builds run on the software GPU: each part of the runtime API, and errors."""

from __future__ import annotations

import pytest
from helpers.driver import nvcc


@pytest.fixture
def run(libraries, features):
    def run(*words, **variables):
        return nvcc.run(libraries, features, *words, **variables)

    return run


PARTS = (
    "symbols",
    "streams",
    "graphs",
    "nodes",
    "attributes",
    "textures",
    "cooperative",
    "managed",
    "driver",
    "callbacks",
    "errors",
)


def test_parts_of_the_runtime_are_right(run):
    done = run(*PARTS)
    assert done.stdout.splitlines() == [f"{part} right" for part in PARTS]
    assert done.returncode == 0


def test_each_thread_has_its_device_its_context_and_its_last_error(run):
    done = run("threads", CUDASYNC_SOFTGPU_DEVICES="2")
    assert (done.stdout, done.returncode) == ("threads right\n", 0)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["fifo", "seed=3", "threaded"])
def test_the_order_of_streams_is_that_of_the_variable(run, scheduler):
    done = run(*PARTS, "threads", CUDASYNC_SOFTGPU_SCHEDULER=scheduler)
    assert done.returncode == 0, done.stdout


def test_kernels_print_where_the_program_is(run):
    assert run("prints").stdout == "before\nkernel says 42\nprints right\n"


def test_a_failed_assertion_is_told_as_cuda_tells_it(run):
    done = run("asserts")
    assert done.stdout == "asserts right\n"
    assert "block: [0,0,0], thread: [3,0,0] Assertion" in done.stderr


def test_an_access_past_the_end_names_the_kernel(run):
    done = run("out_of_bounds")
    assert done.stdout == "out_of_bounds right\n"
    assert "past_the_end" in done.stderr
    assert "PTX line" in done.stderr


def test_what_checks_find_is_the_exit_status(run):
    done = run("races", CUDASYNC_CHECKS="race")
    assert done.stdout == "races right\n"
    assert "cudasync check: 2 race found" in done.stderr
    assert done.returncode == 1
    done = run("symbols", CUDASYNC_CHECKS="race")
    assert "cudasync check: nothing found" in done.stderr
    assert done.returncode == 0


def test_managed_variables_on_several_devices_are_refused(run):
    done = run("managed", CUDASYNC_SOFTGPU_DEVICES="2")
    assert done.stderr.startswith("cudasync native: the program has __managed__ variables")
    assert done.returncode == 2


def test_a_program_forks_before_its_first_call_and_not_after(run):
    assert run("forks").stdout == "forks right\n"


def test_a_program_that_calls_nothing_starts_no_python(run):
    done = run(CUDASYNC_SOFTGPU_DEVICES="no number")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_wrong_setting_is_one_line(run):
    done = run("symbols", CUDASYNC_SOFTGPU_DEVICES="no number")
    assert done.stderr == "cudasync native: not a number: 'no number'\n"
    assert done.returncode == 2


# Libraries and rooms that no start needs: arrays, sockets, the floors above, the second lowering.
NEVER_AT_START = (
    "numpy", "asyncio", "ssl", "multiprocessing", "cudasync.array", "cudasync.engine",
    "cudasync.driver", "cudasync.testing", "cudasync.command", "cudasync.softgpu.oracle",
)  # fmt: skip


def test_a_start_loads_nothing_that_it_does_not_need(run):
    said = run("symbols", PYTHONPROFILEIMPORTTIME="1").stderr
    loaded = {line.split("|")[-1].strip() for line in said.splitlines() if "import time" in line}
    assert "cudasync.softgpu.abi.native.process" in loaded
    assert sorted(loaded & set(NEVER_AT_START)) == []
