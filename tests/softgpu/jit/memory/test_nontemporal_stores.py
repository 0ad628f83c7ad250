"""Stores past the caches: the kernels and launches that use them, and equal memory contents."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.lowering.assembly import assembly
from helpers.lowering.jit_launch import compiled, run

from bench.softgpu import kernels
from cudasync.ptx import parse
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch
from cudasync.softgpu.jit.analysis.streaming_stores import find_nontemporal
from cudasync.softgpu.jit.kernel_abi import kernel_text as texts
from cudasync.softgpu.jit.kernel_abi.kernel_text import Nontemporal
from cudasync.softgpu.jit.transforms.program import prepare

# Reads x and writes y at the thread's index, then does `{more}`.
KERNEL = """
.version 7.5
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter;
.visible .entry copy(.param .u64 x, .param .u64 y, .param .u32 n)
{{
  .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n];
  cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra $end;
  mul.wide.s32 %rd3, %r5, {size};
  add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
  mov.u32 %r9, 3;
$again:
  {copy}
  {more}
$end:
  ret;
}}
"""
WORD = "ld.global.u32 %r6, [%rd4]; st.global.u32 [%rd5], %r6;"
FOUR = "ld.global.v4.u32 {%r6,%r7,%r8,%r10}, [%rd4]; st.global.v4.u32 [%rd5], {%r6,%r7,%r8,%r10};"
LOOP = "add.s32 %r9, %r9, -1; setp.ne.s32 %p2, %r9, 0; @%p2 bra $again;"
BLOCK = 64


def kernel_text(copy: str = WORD, more: str = "", size: int = 4) -> str:
    return KERNEL.format(copy=copy, more=more, size=size)


def found(text: str) -> Nontemporal | None:
    module = parse(text)
    return find_nontemporal(prepare(module, module.kernels[0]))


def aligned(count: int, offset: int = 0) -> np.ndarray:
    """Words that begin `offset` bytes after the start of a cache line."""
    memory = np.zeros(4 * count + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + 4 * count].view(np.uint32)


def launch(*grid: int, pointers=(0, 0), ranges=()) -> Launch:
    """A launch with 8 arbitrary bytes and then the pointers as parameters."""
    parameters = b"".join(each.to_bytes(8, "little") for each in (0, *pointers))
    return Launch(grid, (BLOCK, 2, 1), 0, parameters, [], AllocationSnapshot(ranges))


def test_a_kernel_that_reads_nothing_of_what_it_writes_may_store_past_the_caches():
    assert found(kernel_text()) == Nontemporal(4, (8,))
    assert found(kernel_text(FOUR, size=16)) == Nontemporal(16, (8,))
    assert found(kernel_text(WORD + "st.global.u8 [%rd5+1], %r6;")) == Nontemporal(5, (8,))


def test_in_a_loop_nobody_knows_how_much_a_thread_writes():
    assert found(kernel_text(more=LOOP)) == Nontemporal(None, (8,))
    anywhere = "brx.idx %r6, $ways; $ways: .branchtargets $again, $end;"
    assert found(kernel_text(more=anywhere)) == Nontemporal(None, (8,))


def test_a_loop_without_stores_is_no_matter():
    reads = "ld.global.u32 %r6, [%rd4];"
    assert found(kernel_text(reads, LOOP + "st.global.u32 [%rd5], %r6;")) == Nontemporal(4, (8,))


@pytest.mark.parametrize(
    ("copy", "more"),
    [
        ("ld.global.u32 %r6, [%rd4];", ""),  # writes nothing
        (WORD, "ld.global.u32 %r7, [%rd5]; st.global.u32 [%rd5], %r7;"),  # reads what it writes
        (WORD, "st.global.u32 [%rd4], %r6;"),
        (WORD, "st.volatile.global.u32 [%rd5], %r6;"),
        ("ld.relaxed.gpu.global.u32 %r6, [%rd4]; st.global.u32 [%rd5], %r6;", ""),
        (WORD, "membar.gl; st.global.u32 [%rd5+4], %r6;"),
        (WORD, "fence.acq_rel.gpu;"),
        (WORD, "red.global.add.u32 [%rd5], 1;"),
        (WORD, "bar.sync 0; st.global.u32 [%rd5], %r6;"),
        (WORD, "mov.u64 %rd6, counter; st.global.u32 [%rd6], %r6;"),
        # The pointer came from memory, so it may point anywhere.
        ("ld.global.u64 %rd7, [%rd4]; st.global.u32 [%rd7], %r5;", ""),
    ],
)
def test_other_kernels_store_as_always(copy: str, more: str):
    text = kernel_text(copy, more)
    assert found(text) is None
    assert "nontemporal" not in compiled(text).kernels["copy"].text(VARIANT).text


VARIANT = compiled(kernel_text()).kernels["copy"].variant((BLOCK, 1, 1))


def test_of_the_bench_kernels_those_have_such_stores_that_only_write():
    module = parse(kernels.TEXT.read_text())
    far = {k.name for k in module.kernels if find_nontemporal(prepare(module, k)) is not None}
    assert far == {"grid_stride", "matmul_naive", "mandelbrot", "stencil", "black_scholes"}


def test_it_pays_where_a_launch_writes_more_than_caches_keep():
    enough = texts.LEAST_BYTES // (2 * BLOCK * 16)
    assert Nontemporal(16, (8,)).pays(launch(enough // 4, 2, 2))
    assert not Nontemporal(16, (8,)).pays(launch(enough - 1, 1, 1))
    assert not Nontemporal(8, (8,)).pays(launch(enough, 1, 1))


def test_of_a_loop_the_memory_behind_its_pointers_tells():
    half = texts.LEAST_BYTES // 2
    first, second = 1 << 20, 1 << 40
    ranges = [(first, first + half), (second, second + 3 * half)]
    looping = Nontemporal(None, (8, 16))
    assert looping.pays(launch(1, 1, 1, pointers=(first, second + 2 * half), ranges=ranges))
    assert not looping.pays(launch(1, 1, 1, pointers=(first + 1, second + 2 * half), ranges=ranges))
    assert not looping.pays(launch(1, 1, 1, pointers=(first, 0), ranges=ranges))


def test_the_rest_of_an_allocation():
    snapshot = AllocationSnapshot([(300, 400), (100, 200)])
    asked = [0, 99, 100, 150, 199, 200, 299, 300, 399, 400, 2**64 - 1]
    assert [snapshot.rest(each) for each in asked] == [0, 0, 100, 50, 1, 0, 0, 100, 1, 0, 0]
    assert AllocationSnapshot([]).rest(0) == 0


@pytest.mark.parametrize("memcheck", [False, True])
@pytest.mark.parametrize("offset", [0, 4, 16])
@pytest.mark.parametrize("more", ["", LOOP])
@pytest.mark.parametrize(("copy", "words"), [(WORD, 1), (FOUR, 4)])
def test_memory_is_the_same(monkeypatch, copy, words, more, offset, memcheck):
    """The cache lines are whole or not, and the last lanes are missing."""
    monkeypatch.setattr(texts, "LEAST_BYTES", 0)
    threads = 5 * BLOCK + 3
    count = threads * words
    x = np.arange(1, count + 1, dtype=np.uint32)
    y = aligned(count + 64, 4 * words * (offset // 4))
    module = compiled(kernel_text(copy, more, 4 * words), memcheck=memcheck)
    run(module, "copy", 6, BLOCK, x, y, np.uint32(threads))
    assert (y[:count] == x).all()
    assert not y[count:].any()


def test_the_processor_stores_past_its_caches_and_puts_that_in_order_at_the_end():
    text = compiled(kernel_text(), memcheck=False).kernels["copy"].text(VARIANT).text
    assert text.count("!nontemporal") == 1
    ends = re.findall(r"(.*)\n  ret i32 [012]\n", text[text.index("define i32 @kernel(") :])
    assert ends
    assert {each.strip() for each in ends} == {"fence seq_cst"}
    # At this level, 32 lanes of 4 bytes are four registers.
    assert len(re.findall(r"\bvmovntp?[sdi]", assembly(text))) == 4


def test_no_kernel_pays_for_what_it_does_not_have():
    text = compiled(kernel_text(more="bar.sync 0;"), memcheck=False).kernels["copy"].text(VARIANT)
    assert "fence seq_cst" not in text.text
