"""The script that runs the array API standard's own tests, on a miniature checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.repository.checkout import ROOT

import cudasync as cs
from bench.suites import array_api_copy, xp_on_cpu
from cudasync import xp

SUITES = ROOT / "bench" / "suites"

# The suite's own options.
CONFTEST = """
def pytest_addoption(parser):
    for name in ("--disable-deadline", "--hypothesis-derandomize"):
        parser.addoption(name, action="store_true")
    parser.addoption("--max-examples")
"""
TEST = """
import os
from importlib import import_module
import pytest

xp = import_module(os.environ["ARRAY_API_TESTS_MODULE"])

def test_it_has_no_complex_dtype():
    assert not hasattr(xp, "complex64") and hasattr(xp, "float32")

def test_it_fails():
    assert xp.__name__ == "another"

def test_it_is_left_out():
    pytest.skip("an extension")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the lines that the script changes, and one file of three tests."""
    folder = tmp_path / "suite"
    tests = folder / "array_api_tests"
    tests.mkdir(parents=True)
    (folder / "array-api" / "src").mkdir(parents=True)
    texts: dict[str, str] = {}
    for name, before, _ in array_api_copy.CHANGES:
        texts[name] = texts.get(name, "") + f"'''\n{before}\n'''\n"
    for name, text in texts.items():
        (tests / name).write_text(text)
    (folder / "conftest.py").write_text(CONFTEST)
    (tests / "test_small.py").write_text(TEST)
    return folder


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SUITES / "array_api_suite.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "CHECKOUT"},
    )


def test_each_test_is_counted_and_each_failure_has_its_reason(checkout, tmp_path):
    file = tmp_path / "kept.json"
    ended = run(
        *("--checkout", str(checkout), "--namespace", "numpy_without_complex"),
        *("--only", "test_small", "--examples", "1", "--json", str(file)),
    )
    assert "3 tests, 1 passed (50.0 % of those that ran), 1 failed, 0 lost, 1 skipped" in (
        ended.stdout
    ), ended.stdout + ended.stderr
    assert "another" in ended.stdout
    kept = json.loads(file.read_text())["namespaces"]["numpy_without_complex"]
    assert [each["outcome"] for each in kept] == ["passed", "failed", "skipped"]
    again = run("--table", str(file))
    assert ended.stdout.endswith(again.stdout)


def test_whoever_passes_fewer_tests_than_numpy_fails(tmp_path):
    def outcomes(*words: str) -> list[dict[str, str]]:
        return [{"test": str(i), "outcome": word, "reason": ""} for i, word in enumerate(words)]

    for ours, status in ((["passed", "failed"], 0), (["failed", "failed"], 1)):
        file = tmp_path / "kept.json"
        namespaces = {
            "cudasync.xp": outcomes(*ours),
            "numpy_without_complex": outcomes("passed", "failed"),
        }
        file.write_text(json.dumps({"namespaces": namespaces}))
        ended = run("--table", str(file))
        assert ended.returncode == status, ended.stdout + ended.stderr
        assert "(NumPy too)" in ended.stdout


def test_a_suite_whose_lines_have_changed_is_not_run(checkout):
    path = checkout / "array_api_tests" / "dtype_helpers.py"
    path.write_text("nothing of it")
    ended = run("--checkout", str(checkout))
    assert ended.returncode == 1
    assert "dtype_helpers.py has no line" in ended.stderr


def test_what_is_no_checkout_is_said_to_be_none(tmp_path):
    ended = run("--checkout", str(tmp_path))
    assert "is no checkout of data-apis/array-api-tests" in ended.stderr
    assert "--checkout, or CHECKOUT" in run().stderr


def test_on_the_cpu_arrays_are_made_there_unless_a_device_is_said():
    made = [xp_on_cpu.ones(2), xp_on_cpu.asarray([1, 2]), xp_on_cpu.asarray(np.ones(2))]
    assert {str(each.device) for each in made} == {"cpu"}
    assert xp_on_cpu.zeros(2, device=0).device == cs.Device(0)
    assert xp_on_cpu.asarray(xp.ones(2)).device == cs.Device(0)
    assert xp_on_cpu.__array_namespace_info__().default_device() == "cpu"
