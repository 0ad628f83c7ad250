"""bench/suites/nvidia_suite.py: its report about any checkout's tests and examples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.suites import nvidia_suite, runner

ROOT = Path(__file__).parents[2]

TESTS = """
import pytest
from cuda.bindings import driver
def test_works():
    assert driver.cuInit(0)[0] == 0
    context = driver.cuDevicePrimaryCtxRetain(0)[1]
    driver.cuCtxSetCurrent(context)
    assert driver.cuMemsetD8(driver.cuMemAlloc(4)[1], 1, 4)[0] == 0
def test_asks_alone():
    assert driver.cuDeviceGetCount()[1] == 2
def test_fails():
    raise ValueError("number 17")
def spawned():
    from cuda.bindings._test_helpers import HERE
    assert HERE
def test_spawns():
    import multiprocessing
    from cuda.bindings._test_helpers import HERE
    process = multiprocessing.get_context("spawn").Process(target=spawned)
    process.start()
    process.join()
    assert process.exitcode == 0
def test_dies():
    import os
    os._exit(3)
def test_behind_it():
    pytest.skip("no such thing")
"""


def checkout(folder):
    for package, files in {
        "cuda_core": {"tests/test_it.py": TESTS},
        "cuda_bindings": {
            "tests/test_build_hooks.py": "raise ValueError",
            "cuda/bindings/_test_helpers/__init__.py": "HERE = True",
            "examples/good.py": "print(1)",
            "examples/waived.py": "import sys; sys.exit(100)",
            "examples/wants.py": '# /// script\n# dependencies = ["no-such-package>2"]\n# ///\n',
        },
    }.items():
        for name, text in files.items():
            file = folder / package / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return folder


def test_files_are_tests_and_examples_but_for_those_left_out(tmp_path):
    assert nvidia_suite.files(checkout(tmp_path)) == [
        "cuda_bindings/examples/good.py",
        "cuda_bindings/examples/waived.py",
        "cuda_bindings/examples/wants.py",
        "cuda_core/tests/test_it.py",
    ]


def test_packages_that_an_example_wants_are_read_from_its_head():
    text = "# dependencies = [\n#   \"pytest>=8\", 'no-such-package[x]',\n# ]\nimport pytest\n"
    assert nvidia_suite.missing_packages(text) == ["no-such-package"]
    assert nvidia_suite.missing_packages("import pytest") == []


def test_the_table_counts_apart_what_enqueues_nothing():
    tests = [
        {"test": "cuda_core/tests/test_it.py::a", "outcome": "passed", "enqueued": 3},
        {"test": "cuda_core/tests/test_it.py::b", "outcome": "failed", "reason": "at 0x12"},
        {"test": "cuda_core/tests/test_it.py::c", "outcome": "passed", "enqueued": 0},
        {"test": "cuda_core/examples/d.py", "outcome": "passed"},
    ]
    lines = nvidia_suite.table(tests).splitlines()
    assert lines[0].startswith("3 tests: 2 passed (66.7 %")
    assert lines[1].startswith("2 of them enqueue something, or were lost: 1 passed")
    assert lines[2].startswith("1 of them enqueue nothing: 1 passed")
    assert lines[3].startswith("1 examples: 1 passed")
    assert "    1  at Nx.." in lines


CHILD = """
import json, os, sys
_, module, record, *done = sys.argv
with open(record, "a") as file:
    def say(**event):
        print(json.dumps(event), file=file, flush=True)
    for name in ("flaky", "mended", "dies again", "last"):
        if name in done:
            continue
        say(begun=name)
        say(test=name, outcome="passed" if name == "last" else "failed", reason="first")
        if name in ("mended", "dies again"):
            say(begun=name)
            if name == "dies again":
                os._exit(0)
            say(test=name, outcome="passed", reason="")
        if name == "flaky":
            say(test=name, outcome="failed", reason="second")
    say(over=True)
"""


def test_a_test_that_is_run_again_counts_once_by_its_last_run(tmp_path):
    """This also holds if the second run ends the process silently. Later tests still run."""
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    outcomes = runner.run_module(child, "module", 60)
    assert [(each["test"], each["outcome"], each["reason"]) for each in outcomes] == [
        ("flaky", "failed", "second"),
        ("mended", "passed", ""),
        ("dies again", "lost", "exit status 0: "),
        ("last", "passed", "first"),
    ]


@pytest.mark.slow
def test_a_checkout_runs_a_process_for_each_file(tmp_path):
    kept = tmp_path / "kept.json"
    program = [
        sys.executable,
        str(ROOT / "bench" / "suites" / "nvidia_suite.py"),
        str(checkout(tmp_path)),
    ]
    done = subprocess.run(
        [*program, "--devices", "2", "--json", str(kept)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(kept.read_text())
    assert (report["program"], report["devices"]) == ("nvidia_suite", 2)
    found = {test["test"].rpartition("/")[2]: test for test in report["tests"]}
    assert {name: test["outcome"] for name, test in found.items()} == {
        "good.py": "passed",
        "waived.py": "skipped",
        "wants.py": "skipped",
        "test_it.py::test_works": "passed",
        "test_it.py::test_asks_alone": "passed",
        "test_it.py::test_fails": "failed",
        "test_it.py::test_spawns": "passed",
        "test_it.py::test_dies": "lost",
        "test_it.py::test_behind_it": "skipped",
    }
    assert found["test_it.py::test_works"]["enqueued"] == 1
    assert found["test_it.py::test_asks_alone"]["enqueued"] == 0
    assert found["test_it.py::test_fails"]["reason"] == "ValueError: number 17"
    assert found["test_it.py::test_behind_it"]["reason"] == "no such thing"
