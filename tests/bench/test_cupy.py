"""bench/suites/cupy_suite.py: its report about any checkout's tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.suites import cupy_suite

ROOT = Path(__file__).parents[2]

TESTS = """
import pytest
def test_works():
    pass
@pytest.mark.parametrize("n", range(4))
def test_many(n):
    assert n < 3, "number 17"
def test_refused():
    raise ImportError("cuSOLVER is not supported by the software GPU")
def test_dies():
    import os
    os._exit(3)
"""


def checkout(folder):
    for name, text in {
        "cupy_tests/core_tests/test_it.py": TESTS,
        "cupy_tests/cuda_tests/test_cusolver.py": "raise ValueError",
        "install_tests/test_build.py": "raise ValueError",
    }.items():
        file = folder / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    return folder


def test_files_are_tests_but_for_those_of_what_is_refused(tmp_path):
    assert cupy_suite.files(checkout(tmp_path)) == ["tests/cupy_tests/core_tests/test_it.py"]


def test_the_table_counts_apart_what_is_refused():
    tests = [
        {"test": "tests/a.py::a", "outcome": "passed"},
        {"test": "tests/a.py::b", "outcome": "failed", "reason": "AssertionError: at 0x12"},
        {"test": "tests/a.py::c", "outcome": "failed", "reason": "nvcc is not here"},
        {"test": "tests/a.py::d", "outcome": "failed", "reason": "CuFFTError: CUFFT_NOT_SUPPORTED"},
    ]  # fmt: skip
    lines = cupy_suite.table(tests).splitlines()
    assert lines[0].startswith("2 tests: 1 passed (50.0 %")
    assert lines[1].startswith("2 tests came to a library that is refused")
    assert "    1  AssertionError: at Nx.." in lines


def test_a_refusal_above_the_error_is_the_reason():
    said = "ImportError: cuSPARSE is not supported by the software GPU"
    test = {"test": "a.py::a", "outcome": "failed", "reason": "AssertionError: Only cupy raises"}
    hidden = {
        **test,
        "trace": f"Traceback ...\n{said}: of CUDA's libraries there are three\nAssertion",
    }
    found = cupy_suite.with_refusal(hidden)
    assert found["reason"] == f"{said} (AssertionError: Only cupy raises)"
    assert cupy_suite.is_refused(found)
    assert cupy_suite.with_refusal(test) is test
    passed = {**hidden, "outcome": "passed"}
    assert cupy_suite.with_refusal(passed) is passed


@pytest.mark.slow
def test_a_checkout_runs_a_process_for_each_file(tmp_path):
    kept = tmp_path / "kept.json"
    program = [
        sys.executable,
        str(ROOT / "bench" / "suites" / "cupy_suite.py"),
        str(checkout(tmp_path)),
    ]
    done = subprocess.run(
        [*program, "--every", "2", "--json", str(kept)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(kept.read_text())
    assert (report["program"], report["every"]) == ("cupy_suite", 2)
    found = {test["test"].rpartition("::")[2]: test["outcome"] for test in report["tests"]}
    # Every second test: the first, two of the four, and the one that dies.
    assert found == {
        "test_works": "passed",
        "test_many[1]": "passed",
        "test_many[3]": "failed",
        "test_dies": "lost",
    }
