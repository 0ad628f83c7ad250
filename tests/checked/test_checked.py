"""Each program of this folder under all checks: errors are found, nothing is reported falsely."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec

import pytest
from helpers.driver.nvrtc import needs_nvrtc
from helpers.repository.fork_server import run_warm
from helpers.repository.nvidia_libraries import DEADLINE_S, has_library
from helpers.repository.subprocesses import start

from checked.judging import complaint, prepare
from checked.table import HERE, PROGRAMS, TABLE, Program, as_table
from cudasync.softgpu.core.checks import (
    convergence,
    leaks,
    meetings,
    memory,
    order,
    shadow,
    unwritten,
    watching,
)
from cudasync.softgpu.interface import initialisation_windows

pytestmark = [pytest.mark.lazy, needs_nvrtc]
# These files run in their own processes. numba-cuda asks for the driver when it is imported. An
# endless wait is certain only where no other thread might end it, and is found soon with a small
# budget.
APART = ("with_numba", "with_waits")
LITTLE = str(1 << 20)
FILES = sorted(each.stem for each in HERE.glob("with_*.py"))
if find_spec("cuda.core") is None:
    FILES.remove("with_core")


@pytest.fixture(scope="module", autouse=True)
def prepared():
    for name in FILES:
        if name not in APART:
            prepare(name)


def declared(name: str) -> list[str]:
    """The names of a file's programs, without loading the file before the driver is there."""
    text = (HERE / f"{name}.py").read_text()
    marked = re.findall(r"^@(?:wrong|right)\([^@]*?\)\ndef (\w+)", text, re.MULTILINE)
    return [f"{name}.{each}" for each in marked]


HERE_AT_ONCE = [each for name in FILES if name not in APART for each in declared(name)]


def program(name: str) -> Program:
    return next(each for each in PROGRAMS if each.name == name)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", HERE_AT_ONCE)
def test_what_is_wrong_is_found_and_nothing_else(name):
    assert not complaint(program(name))


@pytest.mark.slow
@pytest.mark.skipif(
    not (has_library("nvvm") and find_spec("numba_cuda")), reason="numba-cuda is not here"
)
def test_programs_through_numba():
    command = [sys.executable, "-W", "ignore", "-m", "checked.judging", "with_numba"]
    code, printed = start(command, DEADLINE_S)
    assert code == 0, printed
    assert printed.startswith(f"{len(declared('with_numba'))} programs")


def test_waits_that_nobody_ends():
    program = "import sys; from checked.judging import main; sys.exit(main(['with_waits']))"
    done = run_warm(program, DEADLINE_S, CUDASYNC_SOFTGPU_BUDGET=LITTLE)
    assert done.code == 0, done.out + done.err
    assert done.out.startswith(f"{len(declared('with_waits'))} programs")


def test_the_table_has_each_program():
    told = TABLE.read_text()
    missing = [line for line in as_table(PROGRAMS) if line not in told]
    assert not missing, "PYTHONPATH=.:tests python -m checked.judging --table writes it anew"
    assert all(f"`{each}`" in told for name in FILES for each in declared(name))


def test_there_are_enough_of_each_kind():
    kinds = [each.kind for each in PROGRAMS]
    assert len(kinds) >= 100
    assert all(kinds.count(kind) >= 5 for kind in ("mem", "race", "init", "sync", "leak", ""))
    assert 0.4 < kinds.count("") / len(kinds) < 0.6


PLANTED = {
    "clocks forget what they join": (
        (order, "_joined", lambda left, right: left),
        "with_streams.a_copy_behind_its_kernel",
    ),
    "no two accesses race": (
        (shadow.Touch, "races", lambda self, other: False),
        "with_streams.a_copy_beside_its_kernel",
    ),
    "a module has no owner": (
        (leaks.Leaks, "_has_owner", lambda *_: False),
        "with_leaks.a_module_of_a_library",
    ),
    "a free touches nothing": (
        (memory.CheckedMemory, "_border", lambda *_: None),
        "with_streams.a_free_that_overtakes",
    ),
    "all is written": (
        (unwritten.Unwritten, "within", lambda *_: []),
        "with_memory.all_but_a_byte",
    ),
    "all of shared and local memory is written": (
        (initialisation_windows.Windows, "early", lambda *_: iter(())),
        "with_memory.an_element_of_shared_memory",
    ),
    "a write writes nothing": (
        (unwritten.Unwritten, "take_away", lambda *_: None),
        "with_memory.a_launch_before",
    ),
    "every lane is a member": (
        (convergence.Convergence, "told", lambda *_: iter(())),
        "with_barriers.a_mask_without_the_thread",
    ),
    "who ends was not waited for": (
        (convergence.Convergence, "_living", lambda *_: 0),
        "with_warps.a_vote_of_half",
    ),
    "no lane is missed": (
        (meetings.Meetings, "_miss", lambda *_: None),
        "with_warps.branches_that_miss_each_other",
    ),
    "nothing is heard of barriers": (
        (convergence.Convergence, "_hear", lambda *_: None),
        "with_barriers.a_barrier_in_each_branch",
    ),
    "kernels with barriers are never told of": (
        (watching.LaunchWatching, "_synchronises", lambda *_: False),
        "with_warps.a_sum_of_half_a_warp",
    ),
    "handles are not noted": (
        (leaks.NotedHandles, "add", leaks.Handles.add),
        "with_leaks.a_graph",
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_bug_that_is_planted_in_a_checker_makes_it_red(bug, monkeypatch):
    (where, name, planted), victim = PLANTED[bug]
    monkeypatch.setattr(where, name, planted)
    assert complaint(program(victim))
