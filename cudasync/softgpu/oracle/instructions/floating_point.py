"""Cellar. Floating-point arithmetic: PTX ISA, "Floating Point Instructions".

f16 and bf16 arithmetic uses double. There, products of halves are exact, and sums are exact or
rounded to odd. So the only rounding is the one on the way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emission.emitter import llvm_type
from cudasync.softgpu.oracle.instructions.half_precision import (
    from_double,
    least_or_most,
    to_double,
)
from cudasync.softgpu.oracle.instructions.rounding_modes import MODES, flush, rounded, saturate

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType
_FLUSHED = (T.F32, T.F16, T.BF16)
_OPERATIONS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "fma": "fma"}


def _mode(i: Instruction) -> str:
    return next((m for m in i.modifiers if m in MODES), "rn")


def read_float(e: Emitter, i: Instruction, index: int, type_: ScalarType | None = None) -> str:
    """An operand, flushed if the instruction says .ftz."""
    type_ = type_ or i.type
    value = e.read(i.operands[index], type_)
    if "ftz" in i.modifiers and type_ in _FLUSHED:
        value = flush(e, value, type_)
    return value


def write_float(e: Emitter, i: Instruction, value: str) -> None:
    if "ftz" in i.modifiers and i.type in _FLUSHED:
        value = flush(e, value, i.type)
    if "sat" in i.modifiers and i.type not in (T.F16, T.BF16):
        value = saturate(e, value, i.type)
    e.write(i.operands[0], value, i.type)


def arithmetic(e: Emitter, i: Instruction) -> None:
    """Lower add, sub, mul, fma, mad, div, sqrt, rcp: rounded once."""
    if i.type in (T.F16, T.BF16):
        _half_arithmetic(e, i)
        return
    type_ = i.type
    operands = [(type_, read_float(e, i, index)) for index in range(1, len(i.operands))]
    opcode = "fma" if i.opcode == "mad" else i.opcode
    if "relu" in i.modifiers:
        e.refuse(f"{i.opcode}.relu is only for half types")
    if opcode == "rcp":
        operands = [(type_, "1.0"), *operands]
        opcode = "div"
    write_float(e, i, rounded(e, _OPERATIONS.get(opcode, opcode), _mode(i), type_, *operands))


def _half_arithmetic(e: Emitter, i: Instruction) -> None:
    if "sat" in i.modifiers and i.type is T.BF16:
        e.refuse("bf16 has no .sat")
    values = [to_double(e, read_float(e, i, n), i.type) for n in range(1, len(i.operands))]
    opcode = "fma" if i.opcode == "mad" else i.opcode
    arguments = [(T.F64, value) for value in values]
    if _mode(i) != "rn":
        e.refuse(f"{i.opcode} with .{_mode(i)} is not defined for half types")
    if opcode == "mul":
        wide = rounded(e, "fmul", "rn", T.F64, *arguments)
    else:
        wide = _to_odd(e, _OPERATIONS[opcode], arguments)
    if "sat" in i.modifiers:
        wide = saturate(e, wide, T.F64)
    if "relu" in i.modifiers:
        wide = clamp_below(e, wide)
    write_float(e, i, from_double(e, wide, i.type, "rn"))


def _to_odd(e: Emitter, operation: str, arguments: list[tuple[ScalarType, str]]) -> str:
    """A double rounded to odd: its last bit is set if it is inexact, so it may be rounded again."""
    low, high, cut = (rounded(e, operation, mode, T.F64, *arguments) for mode in ("rm", "rp", "rz"))
    is_inexact = e.value(f"fcmp one double {low}, {high}")
    bits = e.value(f"bitcast double {cut} to i64")
    odd = e.value(f"bitcast i64 {e.value(f'or i64 {bits}, 1')} to double")
    nearest = rounded(e, operation, "rn", T.F64, *arguments)
    return e.select(is_inexact, "double", odd, nearest)


def clamp_below(e: Emitter, value: str) -> str:
    """.relu of a double: values that are not positive become +0; a NaN stays a NaN."""
    is_low = e.value(f"fcmp ole double {value}, 0.0")
    return e.select(is_low, "double", "0.0", value)


def sign(e: Emitter, i: Instruction) -> None:
    """Lower neg, abs: they change the sign bit alone; a NaN of 16 bits becomes 0x7FFF."""
    bits = e.to_bits(read_float(e, i, 1), i.type)
    width, top = f"i{i.type.bits}", 1 << (i.type.bits - 1)
    if i.opcode == "neg":
        changed = e.value(f"xor {width} {bits}, {top}")
    else:
        changed = e.value(f"and {width} {bits}, {top - 1}")
    if i.type in (T.F16, T.BF16):
        size = e.value(f"and i16 {bits}, 32767")
        is_nan = e.value(f"icmp ugt i16 {size}, {0x7C00 if i.type is T.F16 else 0x7F80}")
        changed = e.select(is_nan, "i16", "32767", changed)
    e.write(i.operands[0], e.from_bits(changed, i.type), i.type)


def copysign(e: Emitter, i: Instruction) -> None:
    """Lower copysign: the magnitude of b with the sign of a."""
    width, top = f"i{i.type.bits}", 1 << (i.type.bits - 1)
    a = e.to_bits(e.read(i.operands[1], i.type), i.type)
    b = e.to_bits(e.read(i.operands[2], i.type), i.type)
    mark = e.value(f"and {width} {a}, {top}")
    rest = e.value(f"and {width} {b}, {top - 1}")
    e.write(i.operands[0], e.from_bits(e.value(f"or {width} {mark}, {rest}"), i.type), i.type)


def extreme(e: Emitter, i: Instruction) -> None:
    """Lower min, max: a number wins over a NaN, and -0 < +0; with .NaN the NaN wins."""
    type_ = i.type
    if type_ in (T.F16, T.BF16):
        a, b = read_float(e, i, 1), read_float(e, i, 2)
        wins = "NaN" in i.modifiers
        write_float(e, i, least_or_most(e, i.opcode, a, b, type_, nan_wins=wins))
        return
    target, width = llvm_type(type_), f"i{type_.bits}"
    a, b = read_float(e, i, 1), read_float(e, i, 2)
    less = e.value(f"fcmp olt {target} {a}, {b}")
    equal = e.value(f"fcmp oeq {target} {a}, {b}")
    low, high = e.select(less, target, a, b), e.select(less, target, b, a)
    # Equal numbers differ at most in the sign of a zero: `or` keeps the sign, `and` drops it.
    join = "or" if i.opcode == "min" else "and"
    a_bits, b_bits = e.to_bits(a, type_), e.to_bits(b, type_)
    same = e.from_bits(e.value(f"{join} {width} {a_bits}, {b_bits}"), type_)
    result = e.select(equal, target, same, low if i.opcode == "min" else high)
    a_nan, b_nan = (e.value(f"fcmp uno {target} {v}, {v}") for v in (a, b))
    propagates = "NaN" in i.modifiers
    result = e.select(b_nan, target, b if propagates else a, result)
    result = e.select(a_nan, target, a if propagates else b, result)
    write_float(e, i, result)


def classify(e: Emitter, i: Instruction) -> None:
    """Lower testp."""
    type_ = i.type
    width = f"i{type_.bits}"
    infinity = 0x7F800000 if type_ is T.F32 else 0x7FF << 52
    smallest = 0x00800000 if type_ is T.F32 else 1 << 52
    bits = e.to_bits(e.read(i.operands[1], type_), type_)
    size = e.value(f"and {width} {bits}, {(1 << (type_.bits - 1)) - 1}")
    finite = e.value(f"icmp ult {width} {size}, {infinity}")
    match i.modifiers[0]:
        case "finite":
            result = finite
        case "infinite":
            result = e.value(f"icmp eq {width} {size}, {infinity}")
        case "number":
            result = e.value(f"icmp ule {width} {size}, {infinity}")
        case "notanumber":
            result = e.value(f"icmp ugt {width} {size}, {infinity}")
        case "normal":
            large = e.value(f"icmp uge {width} {size}, {smallest}")
            large = e.value(f"or i1 {large}, {e.value(f'icmp eq {width} {size}, 0')}")
            result = e.value(f"and i1 {finite}, {large}")
        case _:
            nonzero = e.value(f"icmp ne {width} {size}, 0")
            result = e.value(f"and i1 {nonzero}, {e.value(f'icmp ult {width} {size}, {smallest}')}")
    e.write(i.operands[0], result, T.PRED)
