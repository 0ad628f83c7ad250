"""The vector lowering and the scalar one, which share no semantics, agree on random programs."""

from __future__ import annotations

from functools import partial

import pytest
from helpers.lowering.differential import differences, disagreement, results
from helpers.ptx_generators.instruction_templates import FAMILIES
from helpers.ptx_generators.programs import Program, program_of, programs, straight
from hypothesis import given, settings
from hypothesis import strategies as st

from cudasync.softgpu import jit, oracle

# The tables, ten instructions at a time. Each instruction affects the stored result.
CHUNKS = [
    pytest.param(family[start : start + 10], start, id=f"{name} from {start}")
    for name, family in FAMILIES.items()
    for start in range(0, len(family), 10)
]
# With --run-slow: the number of programs, and programs per test.
MANY, EACH = 600, 50


# Each example compiles vector code for a whole kernel.
@settings(max_examples=settings.default.max_examples // 8)
@given(programs(2), st.integers(0, 2**16), st.booleans(), st.booleans())
def test_random_programs_leave_the_same_bits(
    program: Program, seed: int, memcheck: bool, assume_varying: bool
):
    compile_fast = partial(jit.compile_module, memcheck=memcheck, assume_varying=assume_varying)
    fast = results(compile_fast, program, seed)
    plain = results(oracle.compile_module, program, seed)
    assert not differences(fast, plain), program.text


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, MANY, EACH))
def test_programs_by_number_leave_the_same_bits(first: int):
    found = {n: wrong for n in range(first, first + EACH) if (wrong := disagreement(n))}
    assert not found, "\n".join(f"replay: program_of({n}): {wrong}" for n, wrong in found.items())


@pytest.mark.slow
@pytest.mark.parametrize(("templates", "seed"), CHUNKS)
@pytest.mark.parametrize("assume_varying", [False, True])
def test_every_instruction_of_the_tables_leaves_the_same_bits(templates, seed, assume_varying):
    program = straight(templates, seed)
    fast = results(partial(jit.compile_module, assume_varying=assume_varying), program, seed)
    assert not differences(fast, results(oracle.compile_module, program, seed)), program.text


def test_a_program_has_a_number():
    assert program_of(7) == program_of(7)
    assert len({program_of(number).text for number in range(20)}) == 20
