"""Cellar, jit. prmt: selects four bytes from eight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.vector_ir.values import Value, integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

# By mode: the index of each byte of the result, from its place and the selector.
_MODES: dict[str, Callable[[Builder, Value, int], Value]] = {
    # Forward and backward from the selector.
    "f4e": lambda builder, start, place: builder.binary("add", start, integer("i32", place)),
    "b4e": lambda builder, start, place: builder.binary(
        "and", builder.binary("sub", start, integer("i32", place)), integer("i32", 7)
    ),
    # One byte, everywhere; one half word, twice.
    "rc8": lambda _builder, start, _place: start,
    "rc16": lambda builder, start, place: builder.binary(
        "add",
        builder.binary("shl", builder.binary("and", start, integer("i32", 1)), integer("i32", 1)),
        integer("i32", place & 1),
    ),
    # The byte at the selector replaces all bytes on its right (ecl) or left (ecr).
    "ecl": lambda builder, start, place: builder.intrinsic(
        "umax", "i32", start, integer("i32", place)
    ),
    "ecr": lambda builder, start, place: builder.intrinsic(
        "umin", "i32", start, integer("i32", place)
    ),
}


def _permute(lowering: Lowering, instruction: ir.Instruction) -> None:
    """Without a mode each byte has a selector of 4 bits; the highest bit requests sign bits."""
    builder = lowering.builder
    low, high, selector = (
        builder.flat(lowering.read(each, ScalarType.B32)) for each in instruction.operands[1:]
    )
    wide_low, wide_high = (
        builder.flat(builder.extend(each, "i64", is_signed=False)) for each in (low, high)
    )
    pool = builder.binary("or", wide_low, builder.binary("shl", wide_high, integer("i64", 32)))
    mode = next((_MODES[each] for each in instruction.modifiers if each in _MODES), None)
    result = integer("i32", 0)
    for place in range(4):
        if mode is not None:
            start = builder.binary("and", selector, integer("i32", 3))
            byte = _byte(builder, pool, mode(builder, start, place))
        else:
            pick = builder.binary("lshr", selector, integer("i32", 4 * place))
            byte = _byte(builder, pool, builder.binary("and", pick, integer("i32", 7)))
            asks_sign = builder.binary("and", pick, integer("i32", 8))
            is_negative = builder.compare("icmp ugt", byte, integer("i32", 127))
            sign = builder.select(is_negative, integer("i32", 255), integer("i32", 0))
            wants_byte = builder.compare("icmp eq", asks_sign, integer("i32", 0))
            byte = builder.select(wants_byte, byte, sign)
        moved = builder.binary("shl", byte, integer("i32", 8 * place))
        result = builder.binary("or", result, moved)
    lowering.write(instruction.operands[0], result)


def _byte(builder: Builder, pool: Value, index: Value) -> Value:
    """One of eight bytes."""
    distance = builder.binary("shl", index, integer("i32", 3))
    wide = builder.flat(builder.extend(distance, "i64", is_signed=False))
    moved = builder.truncate(builder.binary("lshr", pool, wide), "i32")
    return builder.binary("and", moved, integer("i32", 255))


EMITTERS: dict[str, Emitter] = {"prmt": _permute}
