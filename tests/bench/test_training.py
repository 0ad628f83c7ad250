"""The bench of training: each way is compared with one device of the same round."""

from __future__ import annotations

import json
import subprocess

import pytest

from bench.distributed import training


def document(slow, difference, right=True):
    """A round on a machine with this speed. The second way takes twice as long as the first."""
    ways = [
        {"name": "one device", "ms_per_step": slow, "difference": 0.0, "is_right": True},
        {"name": "other", "ms_per_step": 2 * slow, "difference": difference, "is_right": right},
    ]
    return {"ways": ways, "left_out": {"4 processes": "needs mpi4py"}}


def test_rounds_are_merged_way_by_way():
    one, other = training.merged([document(1.0, 1e-7), document(50.0, 3e-7), document(2.0, 0.0)])
    assert one["ratio"] == 1
    assert other["ratio"] == pytest.approx(2)
    assert other["ms_per_step"] == pytest.approx(4)
    assert other["difference"] == 3e-7


@pytest.mark.parametrize("right", [True, False])
def test_a_wrong_way_is_said_and_is_exit_status_1(monkeypatch, capsys, right):
    printed = json.dumps({"training": document(1.0, 1e-7, right)})
    done = subprocess.CompletedProcess([], 0 if right else 1, printed)
    monkeypatch.setattr(training.subprocess, "run", lambda *given, **options: done)
    assert training.main(["--rounds", "2"]) == (0 if right else 1)
    told = capsys.readouterr().out
    assert ("WRONG" in told) is not right
    assert "left out: needs mpi4py" in told
