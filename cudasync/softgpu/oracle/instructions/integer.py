"""Cellar. Integer arithmetic: PTX ISA, "Integer Arithmetic Instructions".

An operation whose result could exceed N bits is computed in 2N bits and truncated afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emission.state_records import ThreadState

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType


def wide_read(e: Emitter, i: Instruction, index: int, type_: ScalarType) -> str:
    """Operand `index`, extended by the sign of `type_` to twice its width."""
    return _extend(e, e.read(i.operands[index], type_), type_)


def _extend(e: Emitter, value: str, type_: ScalarType) -> str:
    how = "sext" if type_.is_signed else "zext"
    return e.value(f"{how} i{type_.bits} {value} to i{2 * type_.bits}")


def _cut(e: Emitter, value: str, bits: int) -> str:
    return e.value(f"trunc i{2 * bits} {value} to i{bits}")


def _clamp(e: Emitter, value: str, bits: int) -> str:
    """A signed number of 2N bits clamped to the range of N bits, still 2N wide."""
    high, low = (1 << (bits - 1)) - 1, -(1 << (bits - 1))
    wide = f"i{2 * bits}"
    over = e.value(f"icmp sgt {wide} {value}, {high}")
    value = e.select(over, wide, str(high), value)
    under = e.value(f"icmp slt {wide} {value}, {low}")
    return e.select(under, wide, str(low), value)


def _carry(e: Emitter) -> str:
    """The place of the thread's carry flag CC.CF."""
    return e.at("%frame", ThreadState.carry.offset)


def _carry_in(e: Emitter, bits: int) -> str:
    carry = e.value(f"load i32, ptr {_carry(e)}")
    narrow = e.value(f"trunc i32 {carry} to i1")
    return e.value(f"zext i1 {narrow} to i{2 * bits}")


def _finish(e: Emitter, i: Instruction, wide: str, bits: int) -> None:
    """Write the low half; with .cc, also the carry or borrow from the bit above it.

    The flag is set if nothing was borrowed, as in hardware: a - b is a + ~b + 1.
    """
    if "cc" in i.modifiers:
        above = e.value(f"lshr i{2 * bits} {wide}, {bits}")
        bit = e.value(f"and i{2 * bits} {above}, 1")
        if i.opcode in ("sub", "subc"):
            bit = e.value(f"xor i{2 * bits} {bit}, 1")
        # i32 is narrower than 2N for every width that has a carry.
        e.line(f"store i32 {e.value(f'trunc i{2 * bits} {bit} to i32')}, ptr {_carry(e)}")
    e.write(i.operands[0], _cut(e, wide, bits), i.type)


def add_sub(e: Emitter, i: Instruction) -> None:
    bits = i.type.bits
    operation = "add" if i.opcode in ("add", "addc") else "sub"
    # Carries use unsigned arithmetic, whatever the type is called.
    has_carry = "cc" in i.modifiers or i.opcode in ("addc", "subc")
    type_ = T(f"u{bits}") if has_carry else i.type
    a, b = wide_read(e, i, 1, type_), wide_read(e, i, 2, type_)
    result = e.value(f"{operation} i{2 * bits} {a}, {b}")
    if i.opcode in ("addc", "subc"):
        carry = _carry_in(e, bits)
        if operation == "sub":
            carry = e.value(f"xor i{2 * bits} {carry}, 1")
        result = e.value(f"{operation} i{2 * bits} {result}, {carry}")
    if "sat" in i.modifiers:
        result = _clamp(e, result, bits)
    _finish(e, i, result, bits)


def multiply(e: Emitter, i: Instruction) -> None:
    """Lower mul, mad, madc: .lo, .hi, .wide."""
    bits = i.type.bits
    product = e.value(f"mul i{2 * bits} {wide_read(e, i, 1, i.type)}, {wide_read(e, i, 2, i.type)}")
    if "wide" in i.modifiers:
        wide = T(f"{i.type.value[0]}{2 * bits}")
        if i.opcode != "mul":
            product = e.value(f"add i{2 * bits} {product}, {e.read(i.operands[3], wide)}")
        e.write(i.operands[0], product, wide)
        return
    if "hi" in i.modifiers:
        product = e.value(f"lshr i{2 * bits} {product}, {bits}")
    half = _cut(e, product, bits)
    if i.opcode == "mul":
        e.write(i.operands[0], half, i.type)
        return
    has_carry = "cc" in i.modifiers or i.opcode == "madc"
    type_ = T(f"u{bits}") if has_carry else i.type
    sum_ = e.value(f"add i{2 * bits} {_extend(e, half, type_)}, {wide_read(e, i, 3, type_)}")
    if i.opcode == "madc":
        sum_ = e.value(f"add i{2 * bits} {sum_}, {_carry_in(e, bits)}")
    if "sat" in i.modifiers:
        sum_ = _clamp(e, sum_, bits)
    _finish(e, i, sum_, bits)


def multiply_24(e: Emitter, i: Instruction) -> None:
    """Lower mul24, mad24: the low 24 bits of each factor; .lo is bits 0..31, .hi bits 16..47."""
    factors = []
    for index in (1, 2):
        value = e.value(f"shl i32 {e.read(i.operands[index], i.type)}, 8")
        value = e.value(f"{'ashr' if i.type.is_signed else 'lshr'} i32 {value}, 8")
        factors.append(_extend(e, value, i.type))
    product = e.value(f"mul i64 {factors[0]}, {factors[1]}")
    if "hi" in i.modifiers:
        product = e.value(f"lshr i64 {product}, 16")
    result = _cut(e, product, 32)
    if i.opcode == "mad24":
        wide = e.value(f"add i64 {_extend(e, result, i.type)}, {wide_read(e, i, 3, i.type)}")
        result = _cut(e, _clamp(e, wide, 32) if "sat" in i.modifiers else wide, 32)
    e.write(i.operands[0], result, i.type)


def sum_of_difference(e: Emitter, i: Instruction) -> None:
    """Lower sad: c + |a - b|."""
    bits = i.type.bits
    difference = e.value(
        f"sub i{2 * bits} {wide_read(e, i, 1, i.type)}, {wide_read(e, i, 2, i.type)}"
    )
    distance = _absolute(e, difference, 2 * bits)
    sum_ = e.value(f"add i{2 * bits} {distance}, {wide_read(e, i, 3, i.type)}")
    e.write(i.operands[0], _cut(e, sum_, bits), i.type)


def _absolute(e: Emitter, value: str, bits: int) -> str:
    opposite = e.value(f"sub i{bits} 0, {value}")
    is_negative = e.value(f"icmp slt i{bits} {value}, 0")
    return e.select(is_negative, f"i{bits}", opposite, value)


def divide(e: Emitter, i: Instruction) -> None:
    """Lower div, rem. By zero both are all ones. MININT / -1 wraps, with remainder 0.

    The PTX ISA leaves these cases open; NVIDIA hardware gives these results.
    """
    type_, width = i.type, f"i{i.type.bits}"
    a, b = e.read(i.operands[1], type_), e.read(i.operands[2], type_)
    by_zero = e.value(f"icmp eq {width} {b}, 0")
    unsafe = by_zero
    by_minus_one = "false"
    if type_.is_signed:
        by_minus_one = e.value(f"icmp eq {width} {b}, -1")
        unsafe = e.value(f"or i1 {by_zero}, {by_minus_one}")
    divisor = e.select(unsafe, width, "1", b)
    kind = "s" if type_.is_signed else "u"
    if i.opcode == "div":
        result = e.value(f"{kind}div {width} {a}, {divisor}")
        result = e.select(by_minus_one, width, e.value(f"sub {width} 0, {a}"), result)
    else:
        # The remainder by -1 equals the remainder by 1: zero.
        result = e.value(f"{kind}rem {width} {a}, {divisor}")
    e.write(i.operands[0], e.select(by_zero, width, "-1", result), type_)


def negate(e: Emitter, i: Instruction) -> None:
    a = e.read(i.operands[1], i.type)
    e.write(i.operands[0], e.value(f"sub i{i.type.bits} 0, {a}"), i.type)


def absolute(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], _absolute(e, e.read(i.operands[1], i.type), i.type.bits), i.type)


def extreme(e: Emitter, i: Instruction) -> None:
    """Lower min, max."""
    a, b = e.read(i.operands[1], i.type), e.read(i.operands[2], i.type)
    e.write(i.operands[0], pick_extreme(e, i.opcode, a, b, i.type), i.type)


def pick_extreme(e: Emitter, which: str, a: str, b: str, type_: ScalarType) -> str:
    width = f"i{type_.bits}"
    sign = "s" if type_.is_signed else "u"
    is_first = e.value(f"icmp {sign}{'lt' if which == 'min' else 'gt'} {width} {a}, {b}")
    return e.select(is_first, width, a, b)


def dot_product(e: Emitter, i: Instruction) -> None:
    """Lower dp4a, dp2a: each of the two types says how to extend its operand's parts."""
    a_type, b_type = i.types
    total = e.read(i.operands[3], T.B32)
    a, b = e.read(i.operands[1], T.B32), e.read(i.operands[2], T.B32)
    if i.opcode == "dp4a":
        parts = [(8, 8 * k, 8, 8 * k) for k in range(4)]
    else:
        start = 16 if "hi" in i.modifiers else 0
        parts = [(16, 16 * k, 8, start + 8 * k) for k in range(2)]
    for a_bits, a_start, b_bits, b_start in parts:
        first = _part(e, a, a_start, a_bits, a_type.is_signed)
        second = _part(e, b, b_start, b_bits, b_type.is_signed)
        total = e.value(f"add i32 {total}, {e.value(f'mul i32 {first}, {second}')}")
    e.write(i.operands[0], total, T.B32)


def _part(e: Emitter, word: str, start: int, bits: int, is_signed: bool) -> str:
    up = e.value(f"shl i32 {word}, {32 - start - bits}")
    return e.value(f"{'ashr' if is_signed else 'lshr'} i32 {up}, {32 - bits}")
