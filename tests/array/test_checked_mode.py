"""CUDASYNC_CHECK=1: what a call declares is true, or the op fails with who, what and where.

The mode is a process's from its start, so the cases of `helpers/checked_calls.py` run in one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest
from helpers import checked_calls
from helpers.house import ROOT

from cudasync.driver import checking
from cudasync.errors import CudasyncError

LINES = checked_calls.KERNELS.read_text().splitlines()


def line_of(text):
    """The line of the first kernel's instruction that begins so."""
    return next(n for n, line in enumerate(LINES, start=1) if line.strip().startswith(text))


@cache
def ran(*arguments):
    environment = {**os.environ, "CUDASYNC_CHECK": "1", "CUDASYNC_DEVICE": "soft"}
    done = subprocess.run(
        [sys.executable, checked_calls.__file__, *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(params=["async", "serial"])
def found(request):
    return ran(*(["serial"] if request.param == "serial" else []))


@pytest.fixture
def unchecked(monkeypatch):
    """The same in this process, which is not in that mode; but for the fault."""
    monkeypatch.setenv("CUDASYNC_CHECK", "0")
    cases = checked_calls.CASES.items()
    return {n: checked_calls.outcome(case, serial=False) for n, case in cases if n != "fault"}


def test_launches_that_keep_to_it_run_as_always(found, unchecked):
    for name in ("inferred", "right", "out", "written, then read", "views"):
        assert found[name] == unchecked[name], name
        assert "type" not in found[name]


def test_what_was_expected_of_a_launch_that_is_refused_is_forgotten(found):
    assert "type" not in found["taken back"]


def test_an_argument_that_is_in_and_out_by_two_names_is_as_it_was_declared_in_all(found):
    assert "type" not in found["the same array twice"]


def test_a_narrowing_is_not_wrong_before_it_is_violated(found):
    assert "type" not in found["nothing done"]


def test_writing_what_is_in_fails_the_op(found):
    case = found["in is written"]
    assert (case["type"], case["cause"]) == ("OpError", "CUDA_ERROR_ASSERT")
    assert case["text"].startswith("op 'mix', pushed at ")
    line = line_of("st.global.u32")
    assert f"kernel mix, PTX line {line}, called at {checked_calls.__file__}:" in case["text"]
    assert "argument 1 (target) is declared to be read only (In)" in case["text"]
    assert "but its byte 0 is written" in case["text"]


def test_reading_what_is_out_fails_the_op_and_poisons_what_it_wrote(found):
    case = found["out is read"]
    assert (case["type"], case["cause"]) == ("OpError", "CUDA_ERROR_ASSERT")
    assert f"PTX line {line_of('ld.global.u32 %r_old')}," in case["text"]
    assert "argument 1 (target) is declared to be overwritten without being read" in case["text"]
    assert "is read before this launch has written it" in case["text"]
    assert case["x"] == "mix"


def test_an_atomic_on_what_is_out_fails_the_op(found):
    assert "argument 2 (counter)" in found["out is added to"]["text"]


def test_writing_over_the_end_of_one_view_into_another_fails_the_op(found):
    case = found["beyond its view"]
    assert "argument 2 (source) is declared to be read only (In)" in case["text"]
    assert "its byte 0 is written" in case["text"]


def test_a_narrowing_that_the_ptx_denies_is_refused_at_the_call(found):
    case = found["out is never written"]
    assert case["type"] == "ValueError"
    assert "kernel mix: argument 2 (.u64 source) is declared Out" in case["text"]
    assert "never written" in case["text"]
    case = found["in is never read"]
    assert case["type"] == "ValueError"
    assert "kernel set: argument 1 (.u64 target) is declared In" in case["text"]


def test_a_fault_is_told_as_always(found):
    assert found["fault"]["cause"] == "CUDA_ERROR_ILLEGAL_ADDRESS"


def test_without_the_mode_nothing_of_that_is_checked(unchecked):
    assert not any("type" in case for case in unchecked.values())


def test_a_driver_that_records_gives_no_cause_for_a_warning():
    assert ran()["can record"]
    assert ran()["warned"] == []


def test_a_driver_that_does_not_is_told_of_once(monkeypatch):
    monkeypatch.setattr(checking, "_recorder", lambda: None)
    checking.warn_unless_recorded.cache_clear()
    with pytest.warns(RuntimeWarning, match="CUDASYNC_DEVICE=soft finds all"):
        checking.warn_unless_recorded()
    checking.warn_unless_recorded()
    checking.warn_unless_recorded.cache_clear()


def test_a_value_that_is_neither_0_nor_1_is_refused(monkeypatch):
    for value, expected in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv("CUDASYNC_CHECK", value)
        assert checking.is_checked() is expected
    monkeypatch.setenv("CUDASYNC_CHECK", "yes")
    with pytest.raises(CudasyncError, match="0 or 1"):
        checking.is_checked()


@pytest.mark.slow
def test_every_launch_of_other_tests_keeps_to_what_was_inferred():
    """Those of the shipped kernels, of the demo, and of random programs on the engine."""
    rooms = ["tests/softgpu/test_kernels.py", "tests/demo", "tests/engine"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *rooms],
        cwd=ROOT,
        env={**os.environ, "CUDASYNC_CHECK": "1", "CUDASYNC_DEVICE": "soft"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
