"""`experiments training`: a table, JSON, a picture, and one line where it fails."""

from __future__ import annotations

import importlib.util
import json
import os
import sys

import pytest
from helpers.data.digits import rows
from helpers.distributed.ranks import lacks_mpi

from cudasync.command import main, training
from cudasync.experiments.training import digits
from cudasync.experiments.training.model import Settings
from cudasync.experiments.training.outcome import Outcome, Trained
from cudasync.experiments.training.ways import WAYS


@pytest.fixture(autouse=True)
def data(monkeypatch):
    monkeypatch.setattr(digits, "load", rows)
    monkeypatch.setenv("CUDASYNC_SOFTGPU_DEVICES", os.environ["CUDASYNC_SOFTGPU_DEVICES"])


def experiments(*arguments):
    return main(["experiments", *(str(argument) for argument in arguments)])


# Two processes test the same as four, which start slowly on a machine with two processors.
SOME = [way for way in WAYS if way.processes != 4 or way.servers]


@pytest.mark.parametrize("ways", [SOME, pytest.param(WAYS, marks=pytest.mark.slow)])
def test_all_ways_that_can_be_had_are_in_one_document_and_the_others_are_named(
    capsys, monkeypatch, tmp_path, ways
):
    monkeypatch.setattr(training, "Settings", lambda: Settings(steps=3, batch=16))
    monkeypatch.setattr(training, "WAYS", ways)
    path = tmp_path / "a.svg"
    assert experiments("training", "--size", 8, "--json", "--plot", path) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is True
    had = [way["name"] for way in found["training"]["ways"]]
    missing = found["training"]["left_out"]
    assert sorted([*had, *missing]) == sorted(way.name for way in ways)
    by_ray = [way.name for way in ways if way.transport == "ray"]
    by_mpi = [way.name for way in ways if way.processes and way.name not in by_ray]
    assert set(missing) == {
        *(name for name in by_mpi if lacks_mpi()),
        *(name for name in by_ray if importlib.util.find_spec("ray") is None),
    }
    for name, why in missing.items():
        assert ("cudasync[ray]" if name in by_ray else "cudasync[mpi]") in why
    for way in found["training"]["ways"]:
        assert way["is_right"]
        assert way["is_asynchronous"] == ("servers" in way["name"])
        assert len(way["losses"]) == found["training"]["steps"]
        assert way["ms_per_step"] > 0
    assert path.read_text().count("<!-- one device -->") == 1


def outcome(*differences):
    """An outcome of ways that differ from the first by these amounts."""
    ways = [
        Trained(f"way {number}", [2.0, 1.0 + each], 0.9, 0.1)
        for number, each in enumerate((0.0, *differences))
    ]
    return Outcome(
        settings=Settings(), ways=ways, reference=[2.0, 1.0], left_out={"way 9": "needs more"}
    )


@pytest.mark.parametrize(("last", "is_below"), [(1.4, True), (1.6, False), (2.1, False)])
def test_with_servers_the_last_losses_are_below_a_bound(last, is_below):
    served = Trained("served", [2.0, *[last] * 4], 0.9, 0.1, is_asynchronous=True)
    alone = Trained("alone", [2.0, *[1.0] * 4], 0.9, 0.1)
    found = Outcome(settings=Settings(), ways=[alone], reference=[2.0], left_out={})
    assert found.is_right(served) == is_below


@pytest.mark.parametrize(
    ("differences", "status", "says"),
    [
        ((1e-6, -9e-6), 0, "3 variants within 1e-05: as expected"),
        ((1e-6, -2e-5), 1, "NOT as expected, within 1e-05: way 2"),
        ((1.5,), 1, "way 1"),
    ],
)
def test_a_table_says_what_was_measured_and_the_status_whether_it_is_right(
    capsys, monkeypatch, differences, status, says
):
    monkeypatch.setattr(training, "train", lambda data, settings: outcome(*differences))
    assert experiments("training") == status
    out = capsys.readouterr().out
    assert says in out
    assert "not run: way 9: needs more" in out
    assert "50.0 ms" in out
    assert max(map(len, out.splitlines())) <= 100


def test_what_can_not_be_done_is_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    for arguments, says in (
        (("training",), "pip install scikit-learn"),
        (("training", "dag"), "name it alone"),
        (("training", "--plot", tmp_path / "a.txt"), "must be one of .png"),
    ):
        assert experiments(*arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert says in err
