"""Servers that are actors of Ray: a real cluster on this machine, and processes that are killed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from helpers.house import ROOT
from helpers.ranks import end_marked

import cudasync as cs

PROGRAM = Path(__file__).with_name("ray_program.py")
PATIENCE_S = 240


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the program prints; it is run once, since a cluster takes its time to come."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'cudasync[ray]'")
    mark = uuid.uuid4().hex
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "CUDASYNC_TEST_RUN": mark}
    try:
        done = subprocess.run(
            [sys.executable, PROGRAM, tmp_path_factory.mktemp("ray")],
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


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(cs.distributed.BackendUnavailable, match=r"cudasync\[ray\]") as raised:
        cs.kvstore.create("dist_async", transport="ray")
    assert raised.value.backend == "ray"
    assert len(str(raised.value).splitlines()) == 1
