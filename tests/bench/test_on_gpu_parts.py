"""The parts of a run on a GPU: what they name exists, and a source is known by its files."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec

import pytest
from helpers.repository.checkout import ROOT

from bench.graphs.dags import all_dags
from bench.hardware import device, parts
from bench.hardware.parts import PARTS
from bench.hardware.running import Setting


def every_task(folder, *, is_dry):
    setting = Setting(folder, is_dry, 2)
    return [task for part in PARTS for task in part.tasks(setting)]


@pytest.mark.parametrize("is_dry", [False, True])
def test_every_task_has_a_name_of_its_own_and_runs_what_there_is(is_dry, tmp_path):
    tasks = every_task(tmp_path, is_dry=is_dry)
    assert not [name for name, count in Counter(task.name for task in tasks).items() if count > 1]
    for task in tasks:
        words = task.command
        assert find_spec(words[1]) is not None if words[0] == "-m" else (ROOT / words[0]).exists()
        for word in words:
            if word.startswith("tests/"):
                assert (ROOT / word).exists(), word


def test_the_tests_of_every_room_that_a_gpu_is_for_run_and_those_of_the_host_do_not(tmp_path):
    files = {task.name for task in every_task(tmp_path, is_dry=False)}
    for room in parts.ROOMS:
        assert any(name.startswith(room) for name in files), room
    assert not [name for name in files if name.startswith(parts.HOST_ONLY)]
    for name in parts.HOST_ONLY:
        assert (ROOT / name).exists()
    alone = {task.name for task in every_task(tmp_path, is_dry=False) if task.is_alone}
    assert "tests/array/memory/test_out_of_memory.py" in alone


def test_the_large_sizes_are_sizes_of_the_bench():
    names = {"most_runs"}
    all_dags(lambda name, small, large: names.add(name) or small)
    assert set(parts.LARGE_DAGS) == names


def test_the_source_is_known_by_what_is_tested(tmp_path, monkeypatch):
    for folder in ("cudasync", "bench/results"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(device, "ROOT", tmp_path)
    code = tmp_path / "cudasync" / "a.py"
    code.write_text("1")
    first = device.source()
    (tmp_path / "bench" / "results" / "x.json").write_text("{}")
    (tmp_path / "cudasync" / "DESIGN.md").write_text("words")
    assert device.source() == first
    code.write_text("2")
    assert device.source() != first
