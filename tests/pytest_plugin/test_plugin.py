"""The pytest plugin: its findings, their replay and storage, and the tests that it leaves alone."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from helpers.interfaces.pytest_runs import PLUGIN, RACING, counts, replays, run_each, run_tests
from helpers.repository.checkout import ROOT
from helpers.repository.readme_blocks import blocks

CHECK_RACE = "--gpu-check=race"
FIRST_WAITS = (
    RACING
    + """
@pytest.mark.gpu
@pytest.mark.parametrize("waits", ["stream", "host", "nobody"])
def test_copied(waits):
    assert copied(waits) == [1] * 64

def test_not_marked():
    assert copied("nobody") != [1] * 64
"""
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test_it.py").write_text(FIRST_WAITS)
    return tmp_path


def kept(folder):
    return sorted((folder / ".cudasync" / "failures").glob("*.json"))


def test_a_schedule_that_fails_is_found_replays_and_is_tried_first(folder):
    found = run_tests(folder, "--gpu-schedules=8")
    assert found.code == 1, found.out
    total = counts(found)
    # Three tests under eight seeds, and one unmarked test.
    assert total["passed"] + total["failed"] == 25
    assert 1 <= total["failed"] <= 7
    lines = replays(found)
    assert len(lines) == total["failed"] == len(kept(folder))
    assert all("test_it.py::test_copied[nobody]" in line for line in lines)
    assert "--gpu-replay=seed=1" not in lines[0]
    again = run_tests(folder, *lines[-1])
    assert again.code == 1
    assert replays(again) == [lines[-1]]
    # Fewer seeds than the failing ones: kept seeds come first.
    first = run_tests(folder, "--gpu-schedules=1", "-x", "-k", "nobody")
    assert first.code == 1
    assert counts(first) == {"failed": 1}
    # Once the program is right, no seed is kept.
    (folder / "test_it.py").write_text(FIRST_WAITS.replace('waits == "stream"', "True"))
    mended = run_tests(folder, "--gpu-schedules=1", "-k", "copied")
    assert mended.code == 0, mended.out
    assert not kept(folder)


def test_a_race_is_found_on_a_run_whose_result_is_right(tmp_path):
    (tmp_path / "test_it.py").write_text(
        RACING
        + """
@pytest.mark.gpu
def test_copied():
    copied("nobody")

@pytest.mark.gpu
def test_right():
    assert copied("stream") == [1] * 64

def test_not_marked():
    copied("nobody")
"""
    )
    found = run_tests(tmp_path, "--gpu-check=race,mem")
    assert found.code == 1
    assert counts(found) == {"failed": 1, "passed": 2}
    assert "race: nothing orders the read by a copy" in found.out
    assert "test_it.py:" in found.out
    assert "an event recorded in stream" in found.out
    (line,) = replays(found)
    assert line[0].endswith("test_it.py::test_copied")
    assert "--gpu-check=race,mem" in line
    assert not kept(tmp_path)


def test_the_file_of_tests_in_the_readme_has_a_race_that_is_found(tmp_path):
    page = blocks(ROOT / "cudasync" / "testing" / "README.md")
    (text,) = [each.text for each in page if "@pytest.mark.gpu" in each.text]
    (tmp_path / "test_it.py").write_text(text)
    (plain, found) = (run_tests(tmp_path, "--gpu-device=soft", *o) for o in ([], [CHECK_RACE]))
    assert counts(plain) == {"passed": 1}, plain.out
    assert counts(found) == {"failed": 1}, found.out
    assert "race: nothing orders the read by a copy" in found.out
    (forgotten,) = re.findall("^.*was forgotten$", text, re.MULTILINE)
    mended = text.replace(forgotten, f"    second.wait(first)\n{forgotten}")
    (tmp_path / "test_it.py").write_text(mended)
    assert counts(run_tests(tmp_path, CHECK_RACE)) == {"passed": 1}


def test_every_order_is_run_and_one_that_fails_replays(folder):
    found = run_tests(folder, "--gpu-explore=50")
    assert counts(found) == {"failed": 1, "passed": 3}
    (line,) = replays(found)
    assert any(word.startswith("--gpu-replay=order=") for word in line)
    assert "the order" not in found.out
    again = run_tests(folder, *line)
    assert counts(again) == {"failed": 1}
    assert len(kept(folder)) == 1
    (folder / "test_it.py").write_text(FIRST_WAITS.replace('waits == "stream"', "True"))
    assert run_tests(folder, "--gpu-explore=50", "-k", "copied").code == 0
    assert not kept(folder)


def test_without_an_option_a_marked_test_is_any_other_and_nothing_is_loaded(tmp_path):
    (tmp_path / "test_it.py").write_text(
        """
import sys, pytest

@pytest.mark.gpu
def test_it():
    assert not [name for name in sys.modules if name.partition(".")[0] in ("numpy", "cuda")]
    assert "cudasync.testing" not in sys.modules
    assert "cudasync.pytest_plugin.running" not in sys.modules
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers"]
    printed = [
        subprocess.run(
            [*command, *more, "--rootdir", str(tmp_path), "test_it.py", "-W", "error"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        for more in (["-p", PLUGIN], ["-o", "markers=gpu"])
    ]
    assert [each.returncode for each in printed] == [0, 0], printed[0].stdout + printed[0].stderr
    ours, plain = (each.stdout.rpartition(" in ")[0] for each in printed)
    assert ours == plain


def test_fixtures_give_devices_and_a_latch(tmp_path):
    (tmp_path / "test_it.py").write_text(
        """
import cudasync as cs

def test_one(gpu, latch):
    stream = cs.Stream(gpu)
    latch.hold(stream)
    assert not stream.record().query()

def test_several(gpus):
    assert [each.ordinal for each in gpus(3)] == [0, 1, 2]

def test_too_many(gpus):
    gpus(100)
"""
    )
    done = run_tests(tmp_path, "-rs")
    assert counts(done) == {"passed": 2, "skipped": 1}, done.out
    assert "needs 100 devices, found" in done.out


@pytest.mark.skipif("sys.platform != 'linux'", reason="no such device")
def test_where_there_is_no_real_gpu_marked_tests_are_skipped(folder):
    done = run_tests(folder, "--gpu-device=cuda", "-k", "copied", "-rs", CUDA_VISIBLE_DEVICES="")
    assert counts(done) == {"skipped": 3}, done.out
    assert "there is no usable CUDA driver" in done.out


@pytest.mark.slow
def test_under_xdist_all_seeds_are_run_and_what_failed_is_told(folder):
    pytest.importorskip("xdist")
    two = ("-p", "xdist", "-n", "2", "-k", "copied")
    done = run_tests(folder, "--gpu-schedules=6", *two)
    total = counts(done)
    assert total["passed"] + total["failed"] == 18, done.out
    assert 1 <= total["failed"] == len(replays(done)) == len(kept(folder))
    again = run_tests(folder, "--gpu-schedules=1", *two)
    assert counts(again)["failed"] == total["failed"]


def test_what_makes_no_sense_is_refused_before_any_test(folder):
    refused = {
        ("--gpu-explore", "test_it.py"): "write --gpu-explore=NUMBER",
        ("--gpu-schedules=0",): "not a number above 0",
        ("--gpu-schedules=2", "--gpu-explore"): "exclude each other: give one",
        ("--gpu-check=race", "--gpu-explore"): "use --gpu-schedules",
        ("--gpu-check=rice",): "choose from mem, race",
        ("--gpu-replay=7",): "seed=N or order=",
    }
    for done, says in zip(run_each(folder, *refused), refused.values(), strict=True):
        assert done.code == 4
        assert says in done.out, done.out
