"""The page of driver functions (FUNCTIONS.md) says what the driver does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cuda.bindings import __version__, driver

from cudasync.softgpu import install
from cudasync.softgpu.abi.coverage_page import COMMAND, PAGE, grouped, states
from cudasync.softgpu.abi.stub.unsupported_functions import UNFORESEEN, never_needed, why_not

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def fresh():
    """The page as a new process writes it. No other code looks functions up in that process."""
    command = [sys.executable, "-m", "cudasync.softgpu.abi.coverage_page", "--print"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr
    return done.stdout


def test_the_page_is_what_the_driver_does(fresh):
    kept = PAGE.read_text()
    said, true = states(kept), states(fresh)
    both = said.keys() & true.keys()
    assert {n: said[n] for n in both} == {n: true[n] for n in both}, f"run: {COMMAND}"
    if f"`cuda.bindings` {__version__} " in kept:
        assert kept == fresh, f"run: {COMMAND}"


def test_every_function_stands_on_it_once(fresh):
    names = [
        name for name in dir(driver) if name.startswith("cu") and callable(getattr(driver, name))
    ]
    functions = {n for n in names if n[2].isupper() and not isinstance(getattr(driver, n), type)}
    # One function is looked up by another name. Newer versions are looked up by the old name.
    missing = functions - states(fresh).keys() - {"cuGraphInstantiate"}
    assert not [name for name in missing if not name.endswith(("_v2", "_v3", "_v4"))]
    count = sum(int(number) for number in re.findall(r"\s\((\d+)\):\s", fresh))
    assert count == len(states(fresh))


def test_a_refused_function_says_why(fresh):
    known = states(PAGE.read_text())
    for name, state in states(fresh).items():
        # A function that only a newer `cuda.bindings` looks up is refused without its own reason.
        assert state == "Implemented" or why_not(name) != UNFORESEEN or name not in known, name
    install()
    assert driver.cuMulticastCreate(None)[0] == driver.CUresult.CUDA_ERROR_NOT_SUPPORTED
    code = driver.CUresult.CUDA_ERROR_NOT_SUPPORTED
    text = "cuMulticastCreate is not supported: multicast objects are not modelled"
    assert driver.cuGetErrorString(code)[1].decode() == text


def test_no_implemented_function_is_said_to_be_never_needed(fresh):
    implemented = [name for name, state in states(fresh).items() if state == "Implemented"]
    assert not [name for name in implemented if never_needed(name)]


def test_a_page_that_is_not_true_is_found_out(fresh):
    """The comparison above turns red when one function moves to another list."""
    wrong = fresh.replace("cuStreamQuery, ", "", 1)
    assert wrong != fresh
    wrong = wrong.replace(": cuMulticastC", ": cuStreamQuery, cuMulticastC", 1)
    assert states(fresh)["cuStreamQuery"] == "Implemented"
    assert states(wrong)["cuStreamQuery"] == "Not supported"


def test_names_are_grouped_by_what_they_begin_with():
    groups = grouped(["cuMemcpyBatchAsync", "cuMemAlloc", "cuStreamBeginCapture", "cuGraphicsMap"])
    assert groups == {
        "Graphs and capture": ["cuStreamBeginCapture"],
        "Graphics": ["cuGraphicsMap"],
        "Copies": ["cuMemcpyBatchAsync"],
        "Memory": ["cuMemAlloc"],
    }
