"""A test that a planted bug is found may search again; every other test runs once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from helpers.repository.checkout import ROOT

CONFTEST = """
from helpers.repository import searches

def pytest_configure(config):
    config.pluginmanager.register(searches)
"""
# Each call of `count()` is one search.
TESTS = """
import pytest

made = []

@pytest.fixture(scope="module")
def of_file():
    made.append("file")

@pytest.fixture
def count(of_file):
    made.append("test")
    return lambda: made.count("test")

"""


def told(folder, test, *words):
    """What pytest says of one test that fails until its third search, and its exit status."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_bugs.py").write_text(TESTS + test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, "test_bugs.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["one process", "another process"])
def test_a_search_that_found_nothing_is_repeated_and_named(tmp_path, words):
    if words:
        pytest.importorskip("xdist")
    test = "def test_a_planted_bug(count):\n    assert count() == 3"
    status, said = told(tmp_path, test, *words)
    assert status == 0, said
    assert "searched 3 times: test_bugs.py::test_a_planted_bug" in said
    assert "1 passed" in said


def test_an_error_that_was_not_raised_is_searched_for_again(tmp_path):
    test = """
def test_a_bug_is_found(count):
    with pytest.raises(ValueError):
        if count() == 2:
            raise ValueError
"""
    status, said = told(tmp_path, test)
    assert status == 0, said
    assert "searched 2 times" in said


def test_the_search_ends(tmp_path):
    status, said = told(tmp_path, "def test_a_planted_bug(count):\n    assert count() == 4")
    assert status == 1
    assert "1 failed" in said


@pytest.mark.parametrize(
    "test",
    [
        "def test_a_property(count):\n    assert count() == 2",
        "def test_a_fault_is_found_wherever_it_is(count):\n    assert count() == 2",
        "def test_a_planted_bug(count):\n    if count() == 1: raise RuntimeError",
        "def test_a_planted_bug(count, request):\n"
        "    request.addfinalizer(lambda: 1 / (count() - 1))",
    ],
    ids=["a property", "a property of a search", "another error", "an error at the end"],
)
def test_nothing_else_runs_twice(tmp_path, test):
    status, said = told(tmp_path, test)
    assert status == 1
    assert "searched" not in said


def test_one_search_is_not_named(tmp_path):
    status, said = told(tmp_path, "def test_a_planted_bug(count):\n    assert count() == 1")
    assert status == 0
    assert "searched" not in said
