"""The random programs are fit to compare lowerings: they end, and bugs show in them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from helpers.lowering import ptxas
from helpers.lowering.differential import differences, results
from helpers.ptx_generators.instruction_templates import FAMILIES
from helpers.ptx_generators.programs import Program, program_of, programs, straight
from hypothesis import given, settings
from hypothesis import strategies as st

from cudasync.softgpu.oracle import compile_module


@settings(max_examples=settings.default.max_examples // 4)
@given(programs(2), st.integers(0, 2**16))
def test_checks_of_accesses_change_no_result(program: Program, seed: int):
    """This also shows that no program makes a wrong access."""
    unchecked = results(partial(compile_module, memcheck=False), program, seed)
    assert not differences(results(compile_module, program, seed), unchecked)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("bar", "// bar"),
        ("setp.gt.s32 %more", "setp.ge.s32 %more"),
        ("@!", "@"),
    ],
)
def test_a_planted_bug_shows(right: str, wrong: str):
    def shows(program: Program) -> bool:
        planted = program.changed(right, wrong)
        return right in program.text and bool(
            differences(results(compile_module, program, 0), results(compile_module, planted, 0))
        )

    assert any(shows(program_of(number, 2)) for number in range(50))


@pytest.mark.slow
def test_random_programs_are_ptx_to_nvidia_too(tmp_path):
    """The assembler accepts them as well typed, and all instructions of the tables too."""
    texts = [program_of(number).text for number in range(200)]
    texts += [straight(family, 0).text for family in FAMILIES.values()]
    paths = [tmp_path / f"{number}.ptx" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    assert not ptxas.surprises(paths, parse_only=True)


def test_nans_are_alike_and_zeros_of_different_sign_are_not():
    one = {"x": np.array([np.nan, 0.0, 1.0]), "y": np.array([1, 2], np.uint32)}
    other = {"x": np.array([-np.nan, -0.0, 1.0]), "y": np.array([1, 3], np.uint32)}
    assert [line.partition(":")[0] for line in differences(one, other)] == ["x[1]", "y[1]"]
