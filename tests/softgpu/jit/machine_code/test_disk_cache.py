"""Machine code kept on disk: the next process compiles nothing, and runs no foreign code."""

from __future__ import annotations

import sys
import textwrap

import pytest
from helpers.repository.subprocesses import run_module
from helpers.repository.subprocesses import start as start_process

from cudasync import kept

SCRIPT = """
    import numpy as np
    from helpers.lowering.jit_launch import corpus, run
    from cudasync.softgpu.jit.machine_code import codegen
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    module = corpus("kernels_sm75", memcheck=False)
    run(module, "axpy", 1, 64, np.float32(2), x, y, np.int32(64))
    run(module, "grid_stride", 1, 32, x, y, np.int32(64))
    assert (y == 2 * x + 1).all()
    print(codegen.counts["compiled"], codegen.counts["found"])
"""


def counts(folder, seed: str) -> tuple[int, int]:
    """How often a process that runs SCRIPT compiled, and how often it found kept code."""
    environment = {kept.VARIABLE: str(folder), "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    status, printed = start_process(command, 60, **environment)
    assert status == 0, printed
    compiled, found = map(int, printed.split())
    return compiled, found


def test_a_second_process_compiles_nothing_and_a_damaged_file_only_what_it_held(tmp_path):
    compiled, found = counts(tmp_path, "1")
    assert compiled > 0
    assert found == 0
    files = sorted(tmp_path.iterdir())
    assert len(files) == compiled
    assert counts(tmp_path, "2") == (0, compiled)
    files[0].write_bytes(files[0].read_bytes()[:-1])
    files[1].write_bytes(files[2].read_bytes())
    assert counts(tmp_path, "3") == (2, compiled - 2)
    assert counts(tmp_path, "4") == (0, compiled)


@pytest.mark.parametrize("name", ["huge_shared", "huge_local"])
def test_what_a_process_refused_is_refused_by_the_next_one_too(tmp_path, name):
    """Its code was kept before its sizes were looked at."""
    for _ in range(2):
        code, printed = run_module(
            "helpers.fuzzing.faulting_kernels",
            name,
            deadline_s=60,
            **{kept.VARIABLE: str(tmp_path)},
        )
        assert (code, printed) == (0, f"{name}:\n")
