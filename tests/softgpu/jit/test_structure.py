"""Properties of the bench's kernels that decide their speed, read from the code without a clock.

For each kernel: the width of its vectors, the accesses that run lane by lane, and how often its
innermost loops move vectors to the stack. The code is made for a fixed level, whatever machine runs
the test.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

import pytest
from helpers.lowering.assembly import Code, assembly, functions
from helpers.lowering.kept_code import VARIABLE

from bench.softgpu import kernels
from cudasync.ptx import parse
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.machine_code import codegen


class Structure(NamedTuple):
    """`gathers` and `scatters` always run; `unlikely` ones only where lanes are not consecutive."""

    lanes: int
    gathers: int = 0
    scatters: int = 0
    unlikely: int = 0


KERNELS = {
    "saxpy": Structure(32),
    "grid_stride": Structure(32, unlikely=10),
    "matmul16": Structure(16),
    "matmul32": Structure(32),
    "matmul_naive": Structure(32),
    "block_sum": Structure(32),
    "stencil": Structure(32),
    "transpose": Structure(32, unlikely=4),
    "histogram": Structure(32),
    "mandelbrot": Structure(32),
    "black_scholes": Structure(32),
    "nbody": Structure(32),
    "scan": Structure(32),
}

# The most vectors put on the stack in one trip of the innermost loops, on x86-64-v3, with memcheck
# off and on. With more than 16 live vectors some must be: a warp's register is four vectors. On
# x86-64-v4 there are 32 vectors, and a warp's register is two of them.
SPILLS = {
    "saxpy": (0, 0),
    "matmul16": (0, 0),
    "matmul32": (0, 0),
    "matmul_naive": (0, 8),
    "stencil": (0, 0),
    "transpose": (4, 6),
    "histogram": (4, 4),
    "mandelbrot": (18, 18),
    "black_scholes": (30, 30),
    "nbody": (140, 150),
}


@functools.cache
def kernel_text(name: str, *, memcheck: bool):
    """The lowered text of a kernel for the bench's block shape."""
    return variant_text(module(memcheck=memcheck).kernels[name], kernels.BLOCKS[name])


@functools.cache
def module(*, memcheck: bool):
    return compile_module(parse(kernels.TEXT.read_text()), memcheck=memcheck)


def variant_text(kernel, block):
    variant = kernel.variant(block)
    return variant, kernel.text(variant)


def structure_of(variant, text: str) -> Structure:
    found = {"gather": 0, "scatter": 0, "unlikely": 0}
    unlikely = ""
    for line in text.splitlines():
        label = re.match(r"([\w.]+):$", line.strip())
        if label:
            kind, _, number = label[1].partition(".")
            if kind == "slow":
                unlikely = number
            elif kind == "done" and number == unlikely:
                unlikely = ""
        move = re.search(r"call .*@(?:llvm\.masked|cudasync)\.(gather|scatter)", line)
        if move:
            found["unlikely" if unlikely else move[1]] += 1
        elif re.search(r"call .*@cudasync\.(load|store)\.each", line):
            assert unlikely, line
            found["unlikely"] += 1
    return Structure(variant.lanes, found["gather"], found["scatter"], found["unlikely"])


@pytest.mark.parametrize("memcheck", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_its_width_and_no_access_lane_by_lane_that_it_need_not(name, memcheck):
    variant, text = kernel_text(name, memcheck=memcheck)
    assert structure_of(variant, text.text) == KERNELS[name]


def test_the_table_has_every_kernel_of_the_bench():
    assert set(KERNELS) == set(kernels.BLOCKS) == set(module(memcheck=True).kernels)


def test_a_kernel_compiled_for_the_worst_is_seen_to_gather():
    text = kernels.TEXT.read_text()
    worst = compile_module(parse(text), assume_varying=True).kernels["saxpy"]
    variant, found_text = variant_text(worst, (256, 1, 1))
    found = structure_of(variant, found_text.text)
    assert found.gathers + found.scatters + found.unlikely >= 3


SPILLS_OF_V4 = {"grid_stride": (6, 6), "black_scholes": (8, 8)}


def most_stores(name: str, level: str, *, memcheck: bool) -> int:
    """The vectors put on the stack in one trip of the innermost loop that has most of them."""
    _, text = kernel_text(name, memcheck=memcheck)
    whole = assembly(text.text, level)
    codes = [Code(whole, each) for each in functions(whole)]
    return max(code.stores_to_stack(loop) for code in codes for loop in code.innermost_loops())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SPILLS)
def test_innermost_loops_keep_vectors_in_registers_as_far_as_there_are_any(name):
    for memcheck, most in zip((False, True), SPILLS[name], strict=True):
        assert most_stores(name, "x86-64-v3", memcheck=memcheck) <= most


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", KERNELS)
def test_with_the_registers_of_the_next_level_there_is_room_for_nearly_all(name):
    for memcheck, most in zip((False, True), SPILLS_OF_V4.get(name, (0, 0)), strict=True):
        assert most_stores(name, "x86-64-v4", memcheck=memcheck) <= most


LOOPS = """
\t.text
kernel:
\tmovq\t%rsp, %rbp
\tvmovups\t%ymm1, (%rsp)
.LBB0_1:
\tvmovups\t%ymm1, 32(%rsp)
.LBB0_2:
\tvmovaps\t%ymm1, -64(%rbp)
\tvmovups\t%ymm2, 8(%rax)
\tjne\t.LBB0_3
\tcallq\t*%rax
\tvmovups\t%ymm3, 96(%rsp)
.LBB0_3:
\tvmovups\t%xmm4, 128(%rsp)
\tjne\t.LBB0_2
\tjmp\t.LBB0_5
.LBB0_4:
\tretq
.LBB0_5:
\tje\t.LBB0_1
\tjmp\t.LBB0_4
.Lfunc_end0:
"""


def test_of_loops_in_loops_the_inner_one_counts_and_not_what_is_beside_a_call():
    code = Code(LOOPS)
    (inner,) = code.innermost_loops()
    assert code.stores_to_stack(inner) == 2
    assert code.stores_to_stack(set(range(len(code.lines)))) == 4


def test_llvm_runs_its_passes_once_for_a_kernel_however_often_it_is_loaded_and_launched(
    tmp_path, monkeypatch
):
    # No earlier run has kept its code here.
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    text = kernels.TEXT.read_text().replace("scan", "only_here")
    before = codegen.counts["compiled"]
    first = compile_module(parse(text)).kernels["only_here"].prepare((1024, 1, 1))
    made = codegen.counts["compiled"] - before
    assert made >= 1
    for _ in range(2):
        kernel = compile_module(parse(text)).kernels["only_here"]
        assert kernel.prepare((1024, 1, 1)).owner is first.owner
        # Other blocks of whole rows of warps use the same code.
        assert kernel.prepare((512, 1, 1)).owner is first.owner
    assert codegen.counts["compiled"] - before == made


def test_of_one_kernel_the_others_are_not_lowered():
    text = "\n".join(
        [
            ".version 7.8\n.target sm_80\n.address_size 64",
            ".visible .entry one()\n{\n    ret;\n}",
            ".visible .entry other()\n{\n    trap;\n    ret;\n}",
        ]
    )
    module = parse(text)
    assert list(compile_module(module).kernels) == ["one", "other"]
    assert list(compile_module(module, only="other").kernels) == ["other"]
