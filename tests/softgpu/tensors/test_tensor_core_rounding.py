"""Products in floating point are rounded as an H200 rounds them.

Both lowerings and a model in fractions give the same bits for any numbers. The model's rules came
from the answers that a GPU gave; `test_tensor_core_answers.py` holds these.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering import product_kernels, tensor_core_model
from helpers.lowering.product_kernels import elements, instructions, kernel, memories

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.oracle.interpreter import tensor_core_sums
from cudasync.softgpu.semantics.matrix_forms import ELEMENT_BITS

# Bits of fraction, and the exponent's bias, by element type.
FORMATS = {
    "f32": (23, 127),
    "tf32": (23, 127),
    "bf16": (7, 127),
    "f16": (10, 15),
    "e5m2": (2, 15),
    "e4m3": (3, 7),
}


def numbers(spread: int):
    """Elements with exponents from -spread to spread, and zeros of both signs."""

    def draw(random: np.random.Generator, type_: str, count: int) -> np.ndarray:
        fraction_bits, bias = FORMATS[type_]
        bits = any_bits(random, type_, count)
        least, most = max(bias - spread, 0), min(bias + spread, 2 * bias)
        fields = random.integers(least, most + 1, count).astype(np.uint64)
        sign = bits >> np.uint64(ELEMENT_BITS[type_] - 1) << np.uint64(ELEMENT_BITS[type_] - 1)
        fraction = bits & np.uint64(2**fraction_bits - 1)
        some = random.random(count) < 0.9
        return sign | np.where(some, fields << np.uint64(fraction_bits) | fraction, 0)

    return draw


def any_bits(random: np.random.Generator, type_: str, count: int) -> np.ndarray:
    return random.integers(0, 2 ** ELEMENT_BITS[type_], count, np.uint64)


def with_specials(random: np.random.Generator, type_: str, count: int) -> np.ndarray:
    """Small numbers, and now and then an infinity or a NaN."""
    fraction_bits, bias = FORMATS[type_]
    bits = numbers(2)(random, type_, count)
    special = np.uint64((2 * bias + 1) << fraction_bits)
    if type_ == "e4m3":
        special = np.uint64(0x7F)
    return np.where(random.random(count) < 0.02, bits | special, bits)


VALUES = {
    "alike": numbers(2),
    "different": numbers(12),
    "far": numbers(100),
    "any": any_bits,
    "special": with_specials,
}


def model(form, memory: dict[str, np.ndarray]) -> np.ndarray:
    a, b, c = (elements(form, operand, memory[operand]) for operand in "abc")
    found = np.zeros(c.shape, np.uint64)
    for product, row, column in np.ndindex(*c.shape):
        xs, ys = a[product, row].tolist(), b[product, :, column].tolist()
        found[product, row, column] = tensor_core_model.element(
            form.types, form.shape, form.is_opaque, xs, ys, int(c[product, row, column])
        )
    return found


@pytest.mark.sampled(8)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("instruction", instructions())
def test_lowerings_and_model_give_the_same_bits(instruction, values):
    form, text = kernel(instruction)
    memory = memories(form, np.random.default_rng(len(instruction)), VALUES[values])
    expected = model(form, memory)
    for room in (jit, oracle):
        target = product_kernels.run(room.compile_module(parse(text)), memory)
        found = elements(form, "d", target)
        wrong = np.argwhere(found != expected)
        assert not len(wrong), (room.__name__, wrong[:3], found[found != expected][:3])


# One of the two ways of computing is chosen for a whole product.
@pytest.mark.parametrize("instruction", instructions()[:8:3])
def test_an_infinity_changes_only_its_row(instruction):
    form, text = kernel(instruction)
    module = jit.compile_module(parse(text))
    memory = memories(form, np.random.default_rng(3), VALUES["different"])
    before = elements(form, "d", product_kernels.run(module, memory))
    infinity = {"f16": 0x7C00, "bf16": 0x7F80, "e5m2": 0x7C, "e4m3": 0x7F}[form.types["a"]]
    memory["a"].view(f"u{ELEMENT_BITS[form.types['a']] // 8}")[0] = infinity
    after = elements(form, "d", product_kernels.run(module, memory))
    assert (before[0, 1:] == after[0, 1:]).all()
    assert (before[0, 0] != after[0, 0]).all()


def test_a_bit_less_would_be_noticed(monkeypatch):
    form, text = kernel(instructions()[0])
    memory = memories(form, np.random.default_rng(0), VALUES["different"])
    module = oracle.compile_module(parse(text))
    monkeypatch.setattr(tensor_core_sums, "KEPT_BITS", 24)
    found = elements(form, "d", product_kernels.run(module, memory))
    assert (found != model(form, memory)).any()
