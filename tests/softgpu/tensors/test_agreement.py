"""For any bits in the matrices, the two lowerings agree on the product.

The values in ptx/isa include no infinities, NaNs, subnormals, or sums that overflow.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.lowering.isa_cases import Case, all_cases

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import OutcomeKind

CASES = [case for case in all_cases() if case.name.startswith(("mma_", "wmma_"))]
SAMPLE = 6
SEEDS = range(3)
_DTYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def bits(random: np.random.Generator, size: int) -> np.ndarray:
    """Random bytes; some words are zero, all ones, or have large exponents."""
    words = random.integers(0, 2**32, -(-size // 4), np.uint32)
    words[random.random(len(words)) < 0.3] = 0
    words[random.random(len(words)) < 0.02] = 0x7F80FC00
    words[random.random(len(words)) < 0.02] = 0xFFFFFFFF
    # Most numbers are small, so that sums are not all infinite.
    small = random.random(len(words)) < 0.8
    words[small] &= 0xBFFFBFFF
    return words.view(np.uint8)[:size]


def product(module, case: Case, seed: int) -> np.ndarray:
    """D from random A, B and C; as floats where D holds floats."""
    random = np.random.default_rng(seed)
    memory = {
        name: bare_launch.aligned(bits(random, array.nbytes) if name in case.inputs else array)
        for name, array in case.memories().items()
    }
    args = [memory[name] for name in case.parameters]
    outcome = bare_launch.run(module, "test", grid=case.grid, block=case.block, args=args)
    assert outcome.kind is OutcomeKind.DONE, outcome
    return memory["d"].view(_DTYPES.get(case.expected["d"].type, np.uint32))


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the bits are equal; any two NaNs count as equal."""
    if one.dtype.kind != "f":
        return bool((one == other).all())
    integers = np.dtype(f"u{one.itemsize}")
    alike = one.view(integers) == other.view(integers)
    return bool((alike | (np.isnan(one) & np.isnan(other))).all())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=pytest.mark.slow if index % SAMPLE else ())
        for index, case in enumerate(CASES)
    ],
)
def test_products_of_random_bits(case):
    fast, plain = (room.compile_module(parse(case.text)) for room in (jit, oracle))
    for seed in SEEDS:
        assert same(product(fast, case, seed), product(plain, case, seed)), seed


def test_another_layout_would_be_noticed():
    row, column = (
        next(case for case in CASES if case.name == f"mma_m8n8k4_row_{each}_f32_f16")
        for each in ("row", "col")
    )
    found = [product(jit.compile_module(parse(case.text)), case, 0) for case in (row, column)]
    assert not same(*found)
