"""Every loaded module gives a kernel that runs, or an error with its place.

A process runs many cases. A crash, a hang or unexpected output names the current case.
"""

from __future__ import annotations

import pytest
from helpers.fuzzing import fuzz_program
from helpers.fuzzing.adversarial_texts import TEXTS
from helpers.fuzzing.mutation import damaged, exchanged
from helpers.repository.subprocesses import run_module, run_text

from cudasync.errors import PtxError
from cudasync.ptx import parse

# With --run-slow: the cases of a process, and the number of processes.
EACH, PROCESSES = 250, 8


def complaints(kind: str, first: int, count: int) -> str:
    """Run these cases, and return a line for each problem."""
    environment = {"CUDASYNC_SOFTGPU_BUDGET": str(fuzz_program.BUDGET)}
    words = "helpers.fuzzing.fuzz_program", kind, first, count
    code, printed = run_module(*words, deadline_s=900, **environment)
    lines = printed.splitlines()
    if code or not lines or lines[-1] != "end":
        # The process ended inside the last case that it named.
        return "\n".join([f"{kind}: ended with {code}:", *lines[-25:]])
    return "\n".join(f"{kind}: {line}" for line in lines[:-1] if not line.startswith("case "))


def test_damaged_texts_are_refused_or_run():
    assert complaints("text", 0, 30) == ""


def test_typed_modules_with_parts_exchanged_are_refused_or_run():
    assert complaints("typed", 0, 12) == ""


def test_damaged_fat_binaries_are_refused_or_run():
    assert complaints("fat binary", 0, 120) == ""


@pytest.mark.slow
@pytest.mark.parametrize("lowering", ["auto", "oracle"])
def test_texts_thought_up_to_break_a_compiler_are_refused_or_run(lowering, monkeypatch):
    monkeypatch.setenv("CUDASYNC_SOFTGPU_LOWERING", lowering)
    assert complaints("thought up", 0, len(TEXTS)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("process", range(PROCESSES))
@pytest.mark.parametrize("kind", ["text", "typed", "fat binary"])
def test_many_hostile_cases_are_refused_or_run(kind, process):
    assert complaints(kind, 1000 + process * EACH, EACH) == ""


def test_the_cases_are_worth_something():
    """Some cases are refused, some are not, and equal numbers are equal cases."""
    accepted = 0
    for number in range(60):
        assert damaged(number) == damaged(number)
        try:
            parse(damaged(number))
        except PtxError:
            continue
        accepted += 1
    assert 10 < accepted < 50
    assert exchanged(3) == exchanged(3)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise MemoryError('planted')", "bad 1: MemoryError: planted"),
        ("print('a word')", "a word"),
        ("import os; os.abort()", "ended with -6"),
        ("return 'no line'", "bad 1: no line"),
    ],
)
def test_a_case_that_ends_badly_is_named(body, said):
    """The runner reports a case that breaks its promise, and one that breaks the runner."""
    program = (
        "from helpers.fuzzing import fuzz_program\n"
        f"def planted(number):\n    if number == 1:\n        {body}\n    return ''\n"
        "fuzz_program.typed_case = planted\n"
        "fuzz_program.main('typed', 0, 2)\n"
    )
    code, printed = run_text(program, 60)
    assert said in f"{printed}ended with {code}"
    assert printed.startswith("case 0\ncase 1\n")
