"""Cellar, jit. Atomics on f16 and bf16: read, compute, then swap if the value is unchanged."""

from __future__ import annotations

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.arithmetic import bfloat16
from cudasync.softgpu.jit.vector_ir.builder import Builder
from cudasync.softgpu.jit.vector_ir.values import Value, uniform

HALVES = (ScalarType.F16, ScalarType.BF16)
OPERATIONS = ("add", "min", "max")


def action(builder: Builder, operation: str, type_: ScalarType, *, is_shared: bool) -> str:
    """Update the 16 bits at %pointer by %value; leaves %old, and ends in the block %stored."""
    scalar = Builder(builder.lanes)
    new = _computed(scalar, operation, type_)
    builder.declarations |= scalar.declarations
    compute = "\n".join(scalar.lines)
    if is_shared:
        return f"""\
  %old = load i16, ptr %pointer, align 1
{compute}
  store i16 {new}, ptr %pointer, align 1
  br label %stored
stored:"""
    return f"""\
  %first = load atomic i16, ptr %pointer monotonic, align 2
  br label %again
again:
  %old = phi i16 [%first, %next], [%seen, %again]
{compute}
  %pair = cmpxchg ptr %pointer, i16 %old, i16 {new} seq_cst seq_cst
  %seen = extractvalue {{i16, i1}} %pair, 0
  %is.stored = extractvalue {{i16, i1}} %pair, 1
  br i1 %is.stored, label %stored, label %again
stored:"""


def _computed(builder: Builder, operation: str, type_: ScalarType) -> str:
    old, value = uniform("i16", "%old"), uniform("i16", "%value")
    if type_ is ScalarType.BF16:
        result = _of_floats(builder, operation, *(bfloat16.widen(builder, v) for v in (old, value)))
        return bfloat16.narrow(builder, result).text
    halves = (builder.bitcast(each, "half") for each in (old, value))
    return builder.bitcast(_of_floats(builder, operation, *halves), "i16").text


def _of_floats(builder: Builder, operation: str, old: Value, value: Value) -> Value:
    if operation == "add":
        return builder.binary("fadd", old, value)
    name = "minimumnum" if operation == "min" else "maximumnum"
    return builder.intrinsic(name, old.type, old, value)
