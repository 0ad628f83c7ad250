"""The properties also hold under schedules of the software GPU other than `fifo`.

A process has one scheduler, so each seed has a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from helpers.repository.checkout import ROOT
from helpers.repository.subprocesses import start

PROPERTIES = "tests/engine/test_engine_properties.py"
GRAPHS = "tests/graph/test_graph_properties.py"
AGREEMENT = "tests/engine/test_engine_agreement.py"
WITH_GRAPHS = "tests/graph/test_graph_agreement.py"
BLOCKS = "tests/graph/recording/test_control_properties.py"


def run_under(scheduler: str, profile: str, *tests: str) -> None:
    """Run tests with this scheduler; fails if one of them fails."""
    environment = {
        **os.environ,
        "CUDASYNC_DEVICE": "soft",
        "CUDASYNC_SOFTGPU_SCHEDULER": scheduler,
        "HYPOTHESIS_PROFILE": profile,
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The planted bugs of these files are found without another schedule.
NAMES = "(any_program or total_order or lost_device or each_time or Agreement or graph_does_what)"
NAMES += " and not planted"
USUAL = (GRAPHS, WITH_GRAPHS, BLOCKS, "-k", NAMES)


def test_programs_give_the_serial_result_under_a_seed():
    run_under("seed=1", "look", PROPERTIES, *USUAL)


@pytest.mark.slow
def test_programs_give_the_serial_result_under_a_hundred_seeds(tmp_path):
    command = [sys.executable, "-m", "helpers.engine_programs.many_seeds", "0", "100"]
    settings = {"CUDASYNC_DEVICE": "soft", "CUDASYNC_SOFTGPU_CACHE": str(tmp_path)}
    code, printed = start(command, 550, **settings)
    assert code == 0, printed
    assert "100 seeds" in printed


def test_programs_give_the_serial_result_where_all_is_done_at_once_on_threads():
    run_under("threaded", "look", PROPERTIES, *USUAL)


@pytest.mark.slow
def test_every_property_holds_on_threads():
    run_under("threaded", "ci", PROPERTIES, AGREEMENT, WITH_GRAPHS, BLOCKS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 11))
def test_every_property_holds_under_a_seed(seed):
    run_under(f"seed={seed}", "dev", PROPERTIES, AGREEMENT, WITH_GRAPHS, BLOCKS)
