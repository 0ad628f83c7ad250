"""Interleaved elements of lanes are separated and joined in shuffles that LLVM compiles quickly."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from helpers.lowering.native_code import native, of_arrays

from cudasync.softgpu.jit.memory.interleaved_access import load_apart, together
from cudasync.softgpu.jit.vector_ir.builder import Builder
from cudasync.softgpu.jit.vector_ir.values import bits_of

TYPES = {"i8": "u1", "i16": "u2", "i32": "u4", "i64": "u8", "float": "f4", "double": "f8"}
# Accesses of two, four and eight elements, by warps and by rows of 16 lanes.
FORMS = [
    pytest.param(type_, count, lanes, id=f"{lanes} lanes, {count} {type_}")
    for type_ in TYPES
    for count in (2, 4, 8)
    for lanes in (16, 32)
]


def apart_text(type_: str, count: int, lanes: int) -> str:
    builder = Builder(lanes)
    for n, vector in enumerate(load_apart(builder, "%given", type_, count)):
        at = builder.name(f"getelementptr {builder.vector_type(type_)}, ptr %taken, i64 {n}")
        builder.emit(f"store {builder.vector_type(type_)} {vector}, ptr {at}, align 1")
    return of_arrays(builder)


def together_text(type_: str, count: int, lanes: int) -> str:
    builder = Builder(lanes)
    vectors = []
    for n in range(count):
        at = builder.name(f"getelementptr {builder.vector_type(type_)}, ptr %given, i64 {n}")
        vectors.append(builder.name(f"load {builder.vector_type(type_)}, ptr {at}, align 1"))
    whole = together(builder, vectors, type_)
    builder.emit(f"store <{lanes * count} x {type_}> {whole}, ptr %taken, align 1")
    return of_arrays(builder)


def call(text: str, given: np.ndarray) -> np.ndarray:
    """The memory that the function writes, given this memory."""
    taken = np.zeros_like(given)
    native(text, ctypes.c_void_p, ctypes.c_void_p)(given.ctypes.data, taken.ctypes.data)
    return taken


@pytest.mark.parametrize(("type_", "count", "lanes"), FORMS)
def test_elements_come_apart_and_together_again(type_, count, lanes):
    memory = np.arange(lanes * count).astype(TYPES[type_]).reshape(lanes, count)
    vectors = np.ascontiguousarray(memory.T)
    assert np.array_equal(call(apart_text(type_, count, lanes), memory).ravel(), vectors.ravel())
    assert np.array_equal(call(together_text(type_, count, lanes), vectors).ravel(), memory.ravel())


def wide_shuffles(text: str) -> list[str]:
    """Shuffles of more than two registers that do more than concatenate vectors."""
    found = []
    pattern = r"shufflevector <(\d+) x (\w+)> \S+, <.*> \S+, <\d+ x i32> <(.*)>"
    for width, type_, mask in re.findall(pattern, text):
        order = [int(place) for place in re.findall(r"i32 (\d+)", mask)]
        # An order that starts at a register and ascends is a part, or a concatenation of two parts.
        is_plain = order == list(range(order[0], order[0] + len(order)))
        if int(width) * bits_of(type_) > 512 and not is_plain:
            found.append(f"{width} x {type_}")
    return found


@pytest.mark.parametrize(("type_", "count", "lanes"), FORMS)
def test_no_shuffle_is_of_more_than_two_registers(type_, count, lanes):
    """LLVM's work on a shuffle grows faster than the shuffle's width."""
    text = apart_text(type_, count, lanes) + together_text(type_, count, lanes)
    assert "shufflevector" in text
    assert not wide_shuffles(text)


def test_the_test_knows_a_wide_shuffle():
    order = ", ".join(f"i32 {4 * lane}" for lane in range(32))
    text = f"%t = shufflevector <128 x float> %all, <128 x float> poison, <32 x i32> <{order}>"
    assert wide_shuffles(text) == ["128 x float"]
