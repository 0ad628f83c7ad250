"""Large kernels are compiled in two halves at once, and linked to one kernel."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import numpy as np
import pytest
from helpers.lowering.jit_launch import run

from bench.softgpu import kernels
from cudasync.ptx import parse
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.machine_code import codegen
from cudasync.softgpu.jit.machine_code.module_partitioning import cut, weight
from cudasync.softgpu.jit.vector_ir.mask_vectors import definitions

SOURCE = kernels.TEXT.read_text()


@pytest.fixture(scope="module")
def module():
    return compile_module(parse(SOURCE))


def text_of(module, name):
    kernel = module.kernels[name]
    return kernel.text(kernel.variant(kernels.BLOCKS[name])).text


def functions(text, word):
    return set(re.findall(rf"^{word} (?:internal )?i64 @(segment\.\d+)\(", text, re.MULTILINE))


@pytest.mark.parametrize("name", ["scan", "block_sum", "matmul32", "nbody", "grid_stride"])
def test_each_segment_is_in_one_half_and_known_where_the_kernel_is(module, name):
    text = text_of(module, name)
    own, other = cut(text)
    mine, theirs = functions(own, "define"), functions(other, "define")
    assert mine.isdisjoint(theirs)
    assert mine | theirs == functions(text, "define")
    assert functions(own, "declare") == theirs
    assert "@kernel(" in own
    assert "@kernel(" not in other
    for half in (own, other):
        whole = half + definitions(half, "")
        llvm.parse_assembly(whole, llvm.create_context()).verify()


def test_who_has_other_work_gets_less(module):
    text = text_of(module, "scan")
    even, uneven = cut(text), cut(text, 500)
    assert weight(uneven[1]) < weight(even[1])
    # A split that would leave one half empty is not made.
    assert cut(text, 10**9) == (text,)


def test_object_files_are_kept_as_one_and_come_back_apart():
    for codes in ([], [b""], [b"one"], [b"one", b"", b"three"]):
        assert codegen._unpacked(codegen._packed(codes)) == codes


@pytest.mark.parametrize("name", ["saxpy", "black_scholes", "mandelbrot"])
def test_what_is_small_or_one_function_is_not_cut(module, name):
    text = text_of(module, name)
    assert cut(text) == (text,)


@pytest.mark.parametrize("has_time", [True, False])
def test_halves_are_one_kernel_whether_or_not_a_helper_has_time(monkeypatch, has_time):
    monkeypatch.setenv("CUDASYNC_SOFTGPU_CACHE", "0")
    monkeypatch.setattr(codegen, "PROCESSORS", 2)
    codegen._kernels.clear()
    monkeypatch.setattr(codegen.Job, "ask", codegen.Job.do if has_time else lambda job: None)
    made = []
    make = codegen._made_apart
    monkeypatch.setattr(codegen, "_made_apart", lambda text: (made.append(text), make(text))[1])
    module = compile_module(parse(SOURCE), memcheck=False)
    x, y = np.arange(2048, dtype=np.int32), np.zeros(2048, np.int32)
    run(module, "scan", 2, 1024, x, y)
    assert sum("define i64 @segment." in each for each in made) == 2
    codegen._kernels.clear()
    assert (y.reshape(2, -1) == x.reshape(2, -1).cumsum(axis=1)).all()
