"""Every kernel or launch ends in its documented code, and the process lives on.

All cases of a lowering run in one process, under a deadline. Between them the context is reset and
a good kernel runs.
"""

from __future__ import annotations

from functools import cache

import pytest
from helpers.fuzzing.faulting_kernels import KERNELS
from helpers.repository.subprocesses import run_module

# Instructions of a warp. The budget is small, so that endless kernels end soon.
BUDGET = 2**20
LOWERINGS = ["jit", "oracle"]


@cache
def report(lowering: str) -> dict[str, str]:
    """The problem with each case. The process must end well and print nothing else."""
    code, printed = run_module(
        "helpers.fuzzing.faulting_kernels",
        deadline_s=200,
        CUDASYNC_SOFTGPU_LOWERING=lowering,
        CUDASYNC_SOFTGPU_BUDGET=str(BUDGET),
    )
    assert code == 0, printed
    lines = printed.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(KERNELS), printed
    return {name: found for name, _, found in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "lowering",
    [pytest.param(each, marks=[pytest.mark.slow] * (each == "oracle")) for each in LOWERINGS],
)
def test_a_hostile_kernel_ends_in_its_error_and_harms_nothing(name, lowering):
    assert not report(lowering)[name]


def test_a_case_that_ends_otherwise_is_told():
    """The report would show a wrong code: here the code of a kernel with no budget."""
    words = "helpers.fuzzing.faulting_kernels", "recursion"
    code, printed = run_module(*words, deadline_s=60, CUDASYNC_SOFTGPU_BUDGET="1")
    assert (code, printed.partition(":")[2][:14]) == (0, " 702 is not 0;"), printed
