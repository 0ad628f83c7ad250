"""Cellar, jit. Writes floating constants of PTX as LLVM literals with the same bits."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.vector_ir.uniformity import UNIFORM
from cudasync.softgpu.jit.vector_ir.values import Value, integer, is_float, llvm_type

if TYPE_CHECKING:
    from cudasync.ptx import ir

_FORMATS = {ScalarType.F16: "<e", ScalarType.F32: "<f", ScalarType.F64: "<d"}


def float_literal(operand: ir.Float, type_: ScalarType) -> Value:
    """A floating constant, written as double or single, as a literal of any bit type."""
    bits = operand.bits
    if type_.is_float and type_ is not operand.type and type_ in _FORMATS:
        (number,) = struct.unpack(
            _FORMATS[operand.type], bits.to_bytes(operand.type.size, "little")
        )
        bits = int.from_bytes(struct.pack(_FORMATS[type_], number), "little")
    wanted = llvm_type(type_)
    if not is_float(wanted):
        return integer(wanted, bits)
    if wanted == "half":
        return Value(wanted, f"0xH{bits:04X}", UNIFORM)
    if wanted == "double":
        return Value(wanted, f"0x{bits:016X}", UNIFORM)
    exponent = bits >> 23 & 0xFF
    if exponent == 0xFF and bits & 0x7FFFFF:
        # LLVM has no float literal for a signalling NaN that keeps its bits.
        return Value(wanted, f"bitcast (i32 {bits} to float)", UNIFORM)
    (single,) = struct.unpack("<f", bits.to_bytes(4, "little"))
    (wide,) = struct.unpack("<Q", struct.pack("<d", single))
    return Value(wanted, f"0x{wide:016X}", UNIFORM)
