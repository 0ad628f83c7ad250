"""Right kernels, of the bench and of cudasync itself, cause no finding.

The check watches all their memory, even where the text shows that no threads can race.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest
from helpers.lowering import bare_launch

from bench.harness.measurement import Session
from bench.softgpu import kernels
from bench.softgpu.work import all_work
from cudasync.ptx import parse
from cudasync.softgpu.core.checks.thread_races import ThreadRaces
from cudasync.softgpu.interface.access_recording import Recording
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.jit import compile_module

BENCH = Path("bench/softgpu/kernels.ptx")
WORK = sorted(each.case for each in all_work(Session(small=True)))
SHIPPED = sorted(each.stem for each in Path("ptx/kernels").glob("*.ptx") if each.stem != "latch")
# Kernels that need more than one thread for an element.
BLOCKS = {"sgemm": (16, 16, 1), "transpose": (32, 8, 1)}
COUNT = 8


@pytest.fixture(autouse=True)
def nothing_is_quiet(monkeypatch):
    monkeypatch.setattr("cudasync.softgpu.jit.module.race_free_accesses", lambda *_: ())


def races(kernel, grid, block, values, arrays):
    ranges = [(each.ctypes.data, each.ctypes.data + each.nbytes) for each in arrays]
    found = []
    recording = Recording(ranges)
    recording.races = watch = ThreadRaces(ranges, kernel.sites, prod(block), found.append)
    launch = Launch(
        grid, block, 0, bare_launch.pack(kernel, values), [], AllocationSnapshot(ranges),
        recording=recording,
    )  # fmt: skip
    outcome = kernel.start(launch).run()
    assert outcome.kind is OutcomeKind.DONE, outcome
    assert watch.raised is None
    return found


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", WORK)
def test_the_threads_of_a_kernel_of_the_bench_do_not_race(case):
    (work,) = (each for each in all_work(Session(small=True)) if each.case == case)
    text = BENCH.read_text(encoding="utf-8")
    kernel = compile_module(parse(text), record=True, races=True).kernels[work.kernel]
    values = [each if isinstance(each, np.ndarray) else each.tobytes() for each in work.arguments]
    arrays = [each for each in work.arguments if isinstance(each, np.ndarray)]
    assert races(kernel, work.grid, kernels.BLOCKS[work.kernel], values, arrays) == []


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SHIPPED)
def test_the_threads_of_a_kernel_that_is_shipped_do_not_race(name):
    module = parse(Path(f"ptx/kernels/{name}.ptx").read_text(encoding="utf-8"))
    block = BLOCKS.get(name, (64, 1, 1))
    functions = {each.name: each for each in module.functions}
    for kernel in compile_module(module, record=True, races=True).kernels.values():
        # Indices are distinct, where a kernel takes indices; numbers are small.
        parameters = functions[kernel.name].parameters
        memory = [np.arange(1 << 16, dtype=np.uint64) for _ in parameters]
        values = [
            array if str(each.type).endswith(("B64", "U64")) else COUNT
            for array, each in zip(memory, parameters, strict=True)
        ]
        assert races(kernel, (2, 1, 1), block, values, memory) == []
