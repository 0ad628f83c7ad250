"""`run --check`: findings are reported, saved, suppressed, and give the exit status."""

from __future__ import annotations

import json

import pytest
from helpers.repository.fork_server import run_command


@pytest.fixture
def run(tmp_path):
    """Run a script of these lines, with options."""

    def run(text, *, options):
        script = tmp_path / "script.py"
        script.write_text(text)
        return run_command("run", *options, str(script))

    return run


RACES = """
from cuda.bindings import driver as d
check = lambda r: r[1] if not r[0] and len(r) > 1 else r[0] and 1 / 0
d.cuInit(0)
d.cuCtxSetCurrent(check(d.cuDevicePrimaryCtxRetain(0)))
one, other = check(d.cuStreamCreate(1)), check(d.cuStreamCreate(1))
p = check(d.cuMemAlloc(64))
check(d.cuMemsetD8Async(p, 1, 64, one))
WAIT
check(d.cuMemsetD8Async(p, 2, 64, other))
check(d.cuCtxSynchronize())
print("done")
"""


def test_a_race_is_told_and_is_exit_status_1(run, tmp_path):
    report = tmp_path / "found.json"
    options = ["--check=race", "--json", str(report)]
    done = run(RACES.replace("WAIT", ""), options=options)
    assert (done.code, done.out) == (1, "done\n")
    assert "nothing orders the write" in done.err
    assert done.err.count("script.py:") >= 2
    assert "1 race found" in done.err
    (found,) = json.loads(report.read_text())["findings"]
    assert found["kind"] == "race"


EARLY = """
import numpy as np
import cudasync as cs
y = np.zeros(8, np.float32)
op = cs.copy(y, cs.array(np.arange(8, dtype=np.float32)))
WAIT
print(y[1])
"""


def test_python_that_reads_a_copy_too_early_is_told(run):
    done = run(EARLY.replace("WAIT", ""), options=["--check=race"])
    assert done.code == 1
    assert "Python touches NumPy memory before the op that writes it is over" in done.err
    assert "script.py:7" in done.err
    assert "script.py:5" in done.err


def test_python_that_waits_for_a_copy_is_not_told_of(run):
    done = run(EARLY.replace("WAIT", "op.wait()"), options=["--check=race"])
    assert (done.code, done.out) == (0, "1.0\n")
    assert "nothing found" in done.err


def test_a_program_in_order_is_not_told_of(run):
    done = run(RACES.replace("WAIT", "d.cuStreamSynchronize(one)"), options=["--check=race,mem"])
    assert (done.code, done.out) == (0, "done\n")
    assert "nothing found" in done.err


def test_what_a_file_suppresses_is_counted_alone(run, tmp_path):
    file = tmp_path / "known"
    file.write_text("# Known.\nrace:*script.py*\n")
    done = run(RACES.replace("WAIT", ""), options=["--check=race", "--suppress", str(file)])
    assert done.code == 0
    assert "1 suppressed" in done.err


@pytest.mark.parametrize("option", ["--json=found", "--suppress=known", "--max-reports=3"])
def test_what_is_for_checks_alone_is_refused_without_one(run, option):
    done = run("print(1)", options=[option])
    assert (done.code, done.out) == (2, "")
    assert f"{option.partition('=')[0]} needs --check" in done.err


def test_a_folder_that_there_is_not_is_told_before_the_program_runs(run, tmp_path):
    done = run("print(1)", options=["--check=race", "--json", str(tmp_path / "no" / "found")])
    assert (done.code, done.out) == (2, "")
    assert "there is no folder" in done.err


def test_a_missing_file_of_suppressions_is_one_line(run, tmp_path):
    done = run("print(1)", options=["--check=race", "--suppress", str(tmp_path / "known")])
    assert (done.code, done.out) == (2, "")
    assert done.err == f"cudasync run: {tmp_path / 'known'}: there is no such file\n"


def test_a_check_that_there_is_not_is_refused(run):
    done = run("print(1)", options=["--check=rase"])
    assert (done.code, done.out) == (2, "")
    assert "unknown check 'rase': choose from mem, race, init, sync, leak" in done.err


def test_a_program_that_fails_before_its_first_call_shows_its_own_error_alone(run):
    done = run("1 / 0", options=["--check=race,leak"])
    assert done.code == 1
    assert done.err.count("Traceback") == 1
    assert "ZeroDivisionError" in done.err
    assert "nothing found" in done.err
