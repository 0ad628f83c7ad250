"""CUDASYNC_CHECK=1: a call's declaration is true, or its op fails and names op, access and line.

A process has this mode from its start, so the cases of `helpers/arrays/checked_mode_program.py` run
in one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest
from helpers.arrays import checked_mode_program
from helpers.repository.checkout import ROOT
from helpers.repository.subprocesses import run_module

from cudasync.driver.extensions import declared_accesses
from cudasync.errors import CudasyncError

EXPLORED = "tests/engine/lifecycle/test_dropped_waits.py::test_a_dropped_wait"
LINES = checked_mode_program.KERNELS.read_text().splitlines()


def line_of(text):
    """The line of the first kernel's instruction that begins with `text`."""
    return next(n for n, line in enumerate(LINES, start=1) if line.strip().startswith(text))


@cache
def ran(*arguments):
    environment = {"CUDASYNC_CHECK": "1", "CUDASYNC_DEVICE": "soft"}
    code, printed = run_module(
        "helpers.arrays.checked_mode_program", *arguments, deadline_s=120, **environment
    )
    assert code == 0, printed
    return json.loads(printed)


@pytest.fixture(params=["async", "serial"])
def found(request):
    return ran(*(["serial"] if request.param == "serial" else []))


@pytest.fixture(scope="module")
def unchecked():
    """The same cases, except the fault, in this process, which is not in checked mode."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDASYNC_CHECK", "0")
        cases = checked_mode_program.CASES.items()
        return {
            n: checked_mode_program.outcome(case, serial=False) for n, case in cases if n != "fault"
        }


RIGHT = (
    "inferred", "right", "out", "written, then read", "views", "by hand", "not C-contiguous",
    "a function", "a function with scratch", "a function that pushes", "a function and a variable",
    "an address as a number", "a pointer in memory", "a pointer in memory, as said",
    "a batch",
)  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RIGHT)
def test_launches_that_keep_to_it_run_as_always(found, unchecked, name):
    assert found[name] == unchecked[name]
    assert "type" not in found[name]


def test_an_argument_that_is_in_and_out_by_two_names_is_as_it_was_declared_in_all(found):
    assert "type" not in found["the same array twice"]


def test_a_narrowing_is_not_wrong_before_it_is_violated(found):
    assert "type" not in found["nothing done"]


def test_writing_what_is_in_fails_the_op(found):
    case = found["in is written"]
    assert (case["type"], case["cause"]) == ("OpError", "CUDA_ERROR_ASSERT")
    assert case["text"].startswith("op 'mix', pushed at ")
    line = line_of("st.global.u32")
    place = f"op 'mix' pushed at {checked_mode_program.__file__}:"
    assert f"kernel mix, PTX line {line}, {place}" in case["text"]
    assert "byte 0 of argument 1 (target) is written, but" in case["text"]
    assert "bytes 0 to 32 to be only read. Name it in writes= as well" in case["text"]


def test_reading_what_is_out_fails_the_op_and_poisons_what_it_wrote(found):
    case = found["out is read"]
    assert (case["type"], case["cause"]) == ("OpError", "CUDA_ERROR_ASSERT")
    assert f"PTX line {line_of('ld.global.u32 %r_old')}," in case["text"]
    assert "argument 1 (target) is read before this launch has written it" in case["text"]
    assert "to be overwritten without being read. Name it in reads= as well" in case["text"]
    assert case["x"] == "mix"


def test_a_step_of_a_batch_is_held_to_its_own_declaration(found):
    case = found["a batch with a step beyond its own"]
    assert (case["type"], case["cause"]) == ("OpError", "CUDA_ERROR_ASSERT")
    assert case["text"].startswith("op 'batch, step 1 (<lambda>)', pushed at ")
    assert "op '<lambda> (step 1)' pushed at " in case["text"]


def test_an_atomic_on_what_is_out_fails_the_op(found):
    assert "argument 2 (counter)" in found["out is added to"]["text"]


def test_writing_over_the_end_of_one_view_into_another_fails_the_op(found):
    text = found["beyond its view"]["text"]
    assert "byte 0 of argument 2 (source) is written" in text
    assert "bytes 0 to 24 to be only read" in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("beyond a view", "byte 8 of argument 1 (target) is written, but declared of that memory"
         " are bytes 0 to 8 to be read and written. Name the memory in reads="),
        ("read beyond a view", "byte 8 of argument 2 (source) is read, but"),
        ("beyond not C-contiguous", "byte 28 of argument 1 (target) is written, but declared of"
         " that memory are bytes 0 to 28 to be read and written"),
        ("beyond a view, prepared", "byte 8 of argument 1 (target) is written"),
        ("a pointer in memory, and another said", "byte 0 of stream-ordered device memory of 32"
         " bytes"),
        ("a function writes what it reads", "byte 0 of argument 1 (target) is written, but declared"
         " of that memory are bytes 0 to 32 to be only read. Name it in writes="),
        ("a function writes beyond", "byte 0 of argument 1 (target) is written, but declared of"
         " that memory are bytes 8 to 32 to be overwritten"),
        ("a function and no variable", "byte 0 of a module variable 'total' of 4 bytes"),
    ],
)  # fmt: skip
def test_every_byte_that_a_launch_uses_is_to_be_declared(found, name, words):
    """This includes other bytes of the allocation, a pointer in memory, and an op's function."""
    case = found[name]
    assert (case["type"], case["cause"]) == ("OpError", "CUDA_ERROR_ASSERT")
    assert words in case["text"]
    assert f"pushed at {checked_mode_program.__file__}:" in case["text"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a function reads what it writes", "a copy of 32 bytes, op 'mine' pushed at"),
        ("a function fills", "a memset of 32 bytes, op 'mine' pushed at"),
        ("a function copies out", "is written, but nothing of that memory is declared"),
    ],
)
def test_every_byte_that_a_copy_uses_is_to_be_declared(found, name, words):
    case = found[name]
    assert (case["type"], case["cause"]) == ("OpError", "CUDA_ERROR_NOT_PERMITTED")
    assert words in case["text"]


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
    monkeypatch.setattr(declared_accesses, "_recorder", lambda: None)
    declared_accesses.warn_unless_recorded.cache_clear()
    with pytest.warns(RuntimeWarning, match="CUDASYNC_DEVICE=soft finds all"):
        declared_accesses.warn_unless_recorded()
    declared_accesses.warn_unless_recorded()
    declared_accesses.warn_unless_recorded.cache_clear()


def test_a_value_that_is_neither_0_nor_1_is_refused(monkeypatch):
    for value, expected in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv("CUDASYNC_CHECK", value)
        assert declared_accesses.is_checked() is expected
    monkeypatch.setenv("CUDASYNC_CHECK", "yes")
    with pytest.raises(CudasyncError, match="0 or 1"):
        declared_accesses.is_checked()


@pytest.mark.slow
def test_every_launch_of_other_tests_keeps_to_what_was_inferred():
    """Launches of the shipped kernels, of the demo, and of random programs on the engine.

    An explored program is left out: a checked launch counts as accessing everything.
    """
    rooms = ["tests/softgpu/lowerings/test_kernels.py", "tests/demo", "tests/engine"]
    rooms += ["--deselect", f"{EXPLORED}_passes_when_the_oldest_goes_first_but_not_in_every_order"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *rooms],
        cwd=ROOT,
        env={**os.environ, "CUDASYNC_CHECK": "1", "CUDASYNC_DEVICE": "soft"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
