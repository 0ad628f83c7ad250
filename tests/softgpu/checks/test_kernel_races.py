"""Races between threads of one kernel: each racing kernel stands beside a right one."""

from __future__ import annotations

import functools

import pytest
from helpers.checks import racing_kernels
from helpers.driver.nvrtc import needs_nvrtc

import cudasync as cs
from cudasync.testing import check

pytestmark = [pytest.mark.lazy, needs_nvrtc]

NAMES = sorted(racing_kernels.PAIRS)


@functools.cache
def module_on(_device):
    return cs.Module.from_cuda(racing_kernels.source(), options=("-lineinfo",), name="races.cu")


def races_of(name, **options):
    grid, block = racing_kernels.SHAPES.get(name.rpartition("_")[0], (4, 64))

    def program():
        arrays = [cs.DeviceBuffer(4096) for _ in range(3)]
        for each in arrays:
            cs.memset_async(each, 0)
        kernel = module_on(cs.Device(0)).kernel(name)
        cs.launch(kernel, grid=grid, block=block, args=arrays)
        cs.Device(0).synchronize()

    return check(program, kinds=["race"], **options)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_threads_that_race_are_found(name):
    found = races_of(f"{name}_wrong")
    assert found
    lines = racing_kernels.source().splitlines()
    (line,) = (n for n, each in enumerate(lines, 1) if f" {name}_wrong(" in each)
    for race in found:
        assert race.kind == "race"
        assert all(each.thread and each.ptx_line for each in race.accesses)
        places = {int(each.source.rpartition(":")[2]) for each in race.accesses}
        # The write may be in a function of the first lines.
        assert line in places
        assert all(each == line or each < line for each in places)
        assert all("test_kernel_races.py" in each.site for each in race.accesses)
        assert "write" in {each.verb for each in race.accesses}
        assert race.memory.startswith("bytes ")
        assert race.missing.startswith("missing: ")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_threads_that_do_not_are_not_cried_over(name):
    assert races_of(f"{name}_right") == []
