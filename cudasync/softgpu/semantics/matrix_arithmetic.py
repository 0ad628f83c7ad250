"""Cellar. How a tensor core rounds: the arithmetic of matrix products in floating point.

Products of 16 bits or fewer, and of tf32, are added in blocks. A block is one sum of several
products and of what came before, which is C or the result of the block before:

1. The exponent of a product is the sum of its factors' exponents, so that its significand is below
   four. A subnormal number has the least exponent of its type. Zeros have no exponent.
2. Every term is aligned with the greatest exponent, and truncated: `KEPT_BITS` bits of its fraction
   are kept.
3. The terms are added exactly. The sum is truncated to f32, also where it overflows the exponent of
   a partial sum; only a sum of 2^128 or more is infinite. With C and D in f16 the sum is rounded to
   the nearest f16 instead. A sum that is zero is +0.

Eight-bit floats are first converted to f16. Their blocks take two elements of each four, begin
without C, and C is added at the end by an f32 addition. `m8n8k4` in f16 does not use tensor cores:
it is a chain of fused multiply-adds in f32, with the same addition of C. Every NaN is canonical.

Found from the answers of an H200 (compute capability 9.0); see jit/DESIGN.md, "Matrices of a warp".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.softgpu.semantics.matrix_forms import Form

# The bits of fraction that an aligned term keeps.
KEPT_BITS = 25
# The least exponent of a normal number, by element type. Eight bits are held as f16.
LEAST_EXPONENT = {"f16": -14, "e4m3": -14, "e5m2": -14, "bf16": -126, "tf32": -126, "f32": -126}
# The words of a NaN that was computed.
CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`blocks` has the steps of k of each block; it is empty where products are added singly."""

    blocks: tuple[tuple[int, ...], ...]
    is_c_last: bool
    accumulator: str
    """The type that the result of a block has, f32 or f16."""


def arithmetic_of(form: Form) -> Arithmetic | None:
    """The arithmetic of a form; None if its sums are fused in f64, or exact."""
    if form.computes_in != "f32":
        return None
    if form.batches > 1:
        return Arithmetic((), is_c_last=True, accumulator="f32")
    accumulator = "f16" if form.types["c"] == form.types["d"] == "f16" else "f32"
    steps = range(form.k)
    if form.types["a"] in ("e4m3", "e5m2"):
        # Registers of four elements become two of halves: the low ones first.
        low, high = (tuple(k for k in steps if k // 2 % 2 == part) for part in (0, 1))
        return Arithmetic((low, high), is_c_last=True, accumulator=accumulator)
    # wmma in tf32 is two products of k4, and the equal mma is one.
    size = 4 if form.is_opaque and form.types["a"] == "tf32" else form.k
    blocks = tuple(tuple(steps[start : start + size]) for start in range(0, form.k, size))
    return Arithmetic(blocks, is_c_last=False, accumulator=accumulator)
