"""Large functions are split into pieces, which compute the same as the whole function."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers.lowering.differential import differences, results
from helpers.lowering.jit_launch import CORPUS, run
from helpers.ptx_generators.programs import Program, program_of, programs
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.softgpu import large_kernels
from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.jit.machine_code import split_modules
from cudasync.softgpu.jit.splitting import context

# Pieces of a few instructions, larger pieces, and functions that stay whole.
TINY, SMALL, WHOLE = 8, 60, 10**9
USUAL = (large_kernels.THREADS, 1, 1)
NESTED = (CORPUS / "kernels_sm120.ptx").read_text()
# The sum lives in one piece only, from trip to trip.
KEPT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry kept(.param .u64 out)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, 0;
    mov.u32 %r4, %tid.x;
    mul.wide.u32 %rd1, %r4, 4;
    add.s64 %rd2, %rd0, %rd1;
AGAIN:
    setp.eq.u32 %p0, %r0, 0;
    @%p0 mov.u32 %r1, 5;
    add.u32 %r1, %r1, %r4;
    xor.b32 %r2, %r1, %r0;
    st.global.u32 [%rd2], %r2;
    st.global.u32 [%rd2+256], %r2;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p1, %r0, 9;
    @%p1 bra AGAIN;
    ret;
}
"""


def pieces_of(module):
    """The number of pieces of a kernel."""
    (kernel,) = module.kernels.values()
    return kernel.text(kernel.variant(USUAL)).text.count('define internal i32 @"piece.')


def left_by(text, name, words, weight, **settings):
    """The memory that a kernel leaves, split into pieces of this weight."""
    module = jit.compile_module(parse(text), piece_weight=weight, **settings)
    random = np.random.default_rng(1)
    source = random.normal(size=2 * large_kernels.WORDS).astype(np.float16).view(np.float32)
    out = np.zeros(words, np.float32)
    run(module, name, 1, USUAL, *([out, source] if "source" in text else [out]))
    return out.tobytes()


@pytest.mark.parametrize("family", large_kernels.FAMILIES)
def test_a_kernel_in_pieces_leaves_the_same_bits(family):
    text = large_kernels.large(family, 80)
    assert pieces_of(jit.compile_module(parse(text), piece_weight=SMALL)) > 5
    left = partial(left_by, text, "large", large_kernels.WORDS)
    assert left(SMALL) == left(WHOLE)


@pytest.mark.slow
@pytest.mark.parametrize("family", large_kernels.FAMILIES)
@pytest.mark.parametrize("checks", [{"memcheck": False}, {"assume_varying": True}])
def test_it_does_with_other_settings_and_the_least_pieces(family, checks):
    left = partial(left_by, large_kernels.large(family, 400), "large", large_kernels.WORDS)
    assert left(TINY, **checks) == left(SMALL, **checks) == left(WHOLE, **checks)


# Each example compiles vector code for a whole kernel.
@settings(max_examples=settings.default.max_examples // 8)
@given(programs(2), st.integers(0, 2**16), st.sampled_from([TINY, SMALL]))
def test_random_programs_in_pieces_leave_the_bits_of_the_scalar_lowering(
    program: Program, seed: int, weight: int
):
    split = results(partial(jit.compile_module, piece_weight=weight), program, seed)
    assert not differences(split, results(oracle.compile_module, program, seed)), program.text


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_programs_by_number_in_pieces_leave_the_same_bits(first):
    for number in range(first, first + 10):
        program = program_of(number)
        plain = results(oracle.compile_module, program, number)
        for weight in (TINY, SMALL):
            split = results(partial(jit.compile_module, piece_weight=weight), program, number)
            assert not differences(split, plain), f"replay: program_of({number})"


def nested(weight):
    """The result of nested loops. Lanes leave them, and begin trips, at different times."""
    module = parse(NESTED)
    module = replace(module, functions=(module.function("nested"),))
    module = jit.compile_module(module, piece_weight=weight)
    x, y = np.arange(200, dtype=np.int32) % 12, np.zeros(200, np.int32)
    run(module, "nested", 3, 80, x, y, 200)
    return y.tobytes()


def kept(weight):
    """The result of a sum that is not stored in the piece where it lives."""
    return left_by(KEPT, "kept", 128, 40 if weight == SMALL else weight)


@pytest.mark.parametrize("left", [nested, kept])
def test_what_lives_from_piece_to_piece_is_kept(left):
    assert left(SMALL) == left(WHOLE)


def test_a_live_register_that_is_forgotten_is_found(monkeypatch):
    monkeypatch.setenv("CUDASYNC_SOFTGPU_CACHE", "0")
    monkeypatch.setattr(context.Context, "_slots_of", staticmethod(lambda *_: set()))
    assert kept(SMALL) != kept(WHOLE)


def test_waiting_lanes_that_are_forgotten_are_found(monkeypatch):
    monkeypatch.setenv("CUDASYNC_SOFTGPU_CACHE", "0")
    monkeypatch.setattr(context, "_masks_of_all", lambda _: set())
    assert nested(SMALL) != nested(WHOLE)


def test_a_kernel_that_is_not_large_is_one_function():
    assert pieces_of(jit.compile_module(parse(large_kernels.large("loops", 120)))) == 0


def test_the_text_grows_with_the_kernel_and_no_faster():
    def characters(size):
        module = jit.compile_module(parse(large_kernels.large("barriers", size)), piece_weight=300)
        (kernel,) = module.kernels.values()
        return len(kernel.text(kernel.variant(USUAL)).text)

    assert characters(1600) < 2.2 * characters(800)


def test_a_matrix_is_checked_and_moved_in_one_call():
    """Ten more rounds of two loads: a block more for each load, behind the call that may fail."""

    def blocks(size):
        module = jit.compile_module(parse(large_kernels.large("matrices", size)))
        (kernel,) = module.kernels.values()
        return kernel.text(kernel.variant(USUAL)).text.count(":\n")

    assert blocks(80) - blocks(40) == 10 * 2


def test_each_module_has_what_it_names_and_light_ones_say_so():
    module = jit.compile_module(parse(large_kernels.large("loops", 1500)), piece_weight=600)
    (kernel,) = module.kernels.values()
    text = kernel.text(kernel.variant(USUAL)).text
    assert split_modules.is_split(text)
    parts = split_modules.modules(text)
    assert "@kernel(" in parts[0]
    assert {each.startswith(split_modules.LIGHT_LINE) for each in parts} == {True, False}
    defined = [each.count('\ndefine i32 @"piece.') for each in ("\n" + part for part in parts)]
    assert sum(defined) == text.count('define internal i32 @"piece.')


def small_loops(loops=12, count=16):
    """A kernel of small loops on the same registers, each of which begins with a uniform branch."""
    lines = [f"    mad.lo.u32 %r{n}, %tid_x, {n}, {n};" for n in range(count)]
    for loop in range(loops):
        lines += ["    mov.u32 %trip, 0;", f"AGAIN{loop}:"]
        lines += ["    setp.eq.u32 %p0, %trip, 1;", f"    @%p0 bra OTHER{loop};"]
        lines += [f"    mad.lo.u32 %r{n}, %r{(n + 7) % count}, 3, %r{n};" for n in range(count)]
        lines += [f"OTHER{loop}:", "    add.u32 %trip, %trip, 1;"]
        lines += ["    setp.lt.u32 %p1, %trip, 3;", f"    @%p1 bra AGAIN{loop};"]
    lines += ["    mov.u32 %sum, 0;"]
    lines += [f"    mad.lo.u32 %sum, %sum, 5, %r{n};" for n in range(count)]
    body = "\n".join(lines)
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry loops(.param .u64 out)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<{count}>, %trip, %sum, %tid_x;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [out];
    mov.u32 %tid_x, %tid.x;
{body}
    mul.wide.u32 %rd1, %tid_x, 4;
    add.s64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %sum;
    ret;
}}
"""


def test_the_registers_of_a_piece_and_its_labels_have_names_of_their_own():
    left = partial(left_by, small_loops(), "loops", 128)
    assert left(2 * SMALL) == left(WHOLE)
