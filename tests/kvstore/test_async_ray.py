"""Servers that are Ray actors: a real cluster on this machine, and killed processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from helpers.distributed.ranks import end_marked
from helpers.repository.checkout import ROOT

import cudasync as cs

PROGRAM = Path(__file__).with_name("ray_program.py")
PATIENCE_S = 480


@pytest.fixture(scope="module")
def ray():
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'cudasync[ray]'")


@pytest.fixture(scope="module")
def told(ray, tmp_path_factory):
    """The program's output. It runs once, because a cluster starts slowly."""
    return run_marked([PROGRAM, tmp_path_factory.mktemp("ray")])


def run_marked(words):
    """Run Python with these arguments and Ray's defaults; then nothing of Ray is left."""
    mark = uuid.uuid4().hex
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "CUDASYNC_TEST_RUN": mark}
    try:
        done = subprocess.run(
            [sys.executable, *words],
            env={name: each for name, each in environment.items() if not name.startswith("RAY_")},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        end_marked(mark)
    return done


@pytest.mark.parametrize(
    "line", ["closed to others", "everything", "killed servers", "lost server", "killed worker"]
)
def test_workers_and_servers_of_ray(told, line):
    assert line in told.stdout.splitlines(), told.stdout + told.stderr


def test_the_program_ends_well(told):
    assert told.returncode == 0, told.stdout + told.stderr


OPEN = """
import os, sys
import ray
import cudasync as cs
os.environ.update(**dict(each.split("=") for each in sys.argv[1:]))
try:
    cs.kvstore.create("dist_async", transport="ray")
except cs.distributed.BackendUnavailable as error:
    assert "all interfaces" in str(error), error
    assert not ray.is_initialized()
    print("refused")
"""


@pytest.mark.parametrize("later", [[], ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"]])
def test_a_cluster_that_would_be_open_to_others_is_refused(ray, later):
    """Ray was imported before the store could restrict it to this machine."""
    assert run_marked(["-c", OPEN, *later]).stdout == "refused\n"


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(cs.distributed.BackendUnavailable, match=r"cudasync\[ray\]") as raised:
        cs.kvstore.create("dist_async", transport="ray")
    assert raised.value.backend == "ray"
    assert len(str(raised.value).splitlines()) == 1
