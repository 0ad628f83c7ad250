"""The random programs are fit to compare lowerings on: they finish, and bugs show in them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers.lowerings import differences, results
from helpers.ptx_programs import Program, programs
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from cudasync.softgpu.oracle import compile_module


@settings(max_examples=settings.default.max_examples // 3)
@given(programs(), st.integers(0, 2**16))
def test_checks_of_accesses_change_no_result(program: Program, seed: int):
    """Which also says that no program has an access to be caught."""
    unchecked = results(partial(compile_module, memcheck=False), program, seed)
    assert not differences(results(compile_module, program, seed), unchecked)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("bar.sync 0;", ""),
        ("setp.gt.s32 %more", "setp.ge.s32 %more"),
        ("@!", "@"),
    ],
)
def test_a_planted_bug_shows(right: str, wrong: str):
    def shows(program: Program) -> bool:
        if right not in program.text:
            return False
        planted = replace(program, text=program.text.replace(right, wrong))
        return bool(
            differences(results(compile_module, program, 0), results(compile_module, planted, 0))
        )

    # Finding is what is tested; making it small is not.
    quick = settings(max_examples=1000, phases=[Phase.generate], derandomize=True, database=None)
    find(programs(), shows, settings=quick)


def test_nans_are_alike_and_zeros_of_different_sign_are_not():
    one = {"x": np.array([np.nan, 0.0, 1.0]), "y": np.array([1, 2], np.uint32)}
    other = {"x": np.array([-np.nan, -0.0, 1.0]), "y": np.array([1, 3], np.uint32)}
    assert [line.partition(":")[0] for line in differences(one, other)] == ["x[1]", "y[1]"]
