"""The vector lowering and the scalar one, which share no semantics, agree on random programs."""

from __future__ import annotations

from helpers.lowerings import differences, results
from helpers.ptx_programs import Program, programs
from hypothesis import given, settings
from hypothesis import strategies as st

from cudasync.softgpu import jit, oracle


# Each example compiles vector code for a whole kernel.
@settings(max_examples=settings.default.max_examples // 6)
@given(programs(), st.integers(0, 2**16))
def test_random_programs_leave_the_same_bits(program: Program, seed: int):
    fast = results(jit.compile_module, program, seed)
    plain = results(oracle.compile_module, program, seed)
    assert not differences(fast, plain), program.text
