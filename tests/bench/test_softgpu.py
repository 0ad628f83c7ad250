"""bench_softgpu compares the same cases on both sides."""

from __future__ import annotations

import re

import bench_softgpu
import pytest

from bench.harness.measurement import Session
from bench.softgpu import kernels, pocl
from bench.softgpu import work as softgpu_work


@pytest.mark.parametrize("kernel", kernels.BLOCKS)
def test_a_kernel_in_opencl_has_no_word_of_cuda_left(kernel):
    text = pocl.opencl(kernel)
    assert f"kernel void {kernel}(" in text
    assert not re.search(r"__|Idx|Dim|atomicAdd|make_|\w+f\(|const int \w+ =|extern", text)
    (parameters,) = re.findall(r"kernel void \w+\(([^)]*)\)", text)
    pointers = [each for each in parameters.split(",") if "*" in each]
    assert pointers
    assert all("global " in each for each in pointers)


@pytest.mark.parametrize("kernel", kernels.BLOCKS)
def test_a_kernel_in_opencl_keeps_the_braces_and_the_arithmetic_of_its_source(kernel):
    ours, theirs = kernels.section(kernel), pocl.opencl(kernel)
    for each in ("+", "- ", "/ ", "for (", "if ("):
        assert ours.count(each) == theirs.count(each)
    assert theirs.count("{") == theirs.count("}")


def test_every_case_has_a_goal_and_every_goal_a_case():
    cases = {work.case for work in softgpu_work.all_work(Session(small=True))}
    over_numba, over_pocl = set(bench_softgpu.GOALS), set(bench_softgpu.POCL_GOALS)
    assert over_numba | over_pocl == cases
    # A substitute for a goal over PoCL is only for cases without another goal.
    assert set(bench_softgpu.INSTEAD_OF_POCL) < over_pocl - over_numba
