"""Cellar. Approximate functions: PTX ISA, "Floating Point Instructions", the forms with .approx.

The C library computes them in double, and one rounding follows. This is more exact than the ISA
requires, but for what programs notice of hardware: sin and cos count turns in fixed point, results
of 16 bits are cut off, a huge divisor gives zero, and gross reciprocals have no lower word.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.instructions.floating_point import arithmetic, read_float, write_float
from cudasync.softgpu.oracle.instructions.half_precision import from_double, to_double
from cudasync.softgpu.oracle.instructions.rounding_modes import flush

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType
_HALVES = (T.F16, T.BF16)
_LIBRARY = {"ex2": "exp2", "lg2": "log2", "tanh": "tanh"}
# The f32 nearest to 1 / (2 pi), and the bits of a turn in fixed point.
_TURN = 0.15915493667125702
_TURN_BITS = 25


def approximation(e: Emitter, i: Instruction) -> None:
    """Lower sin, cos, ex2, lg2, tanh, rsqrt."""
    if i.opcode == "rsqrt" and _is_gross(i):
        _gross(e, i)
        return
    value = read_float(e, i, 1)
    if i.type is T.F32:
        value = e.value(f"fpext float {value} to double")
    elif i.type in _HALVES:
        value = to_double(e, value, i.type)
    if i.opcode == "rsqrt":
        root = e.call("double", "llvm.sqrt.f64", ("double", value))
        value = e.value(f"fdiv double 1.0, {root}")
    elif i.opcode in ("sin", "cos"):
        value = _circular(e, value, i.opcode)
    else:
        value = e.call("double", _LIBRARY[i.opcode], ("double", value))
    if i.type is T.F32:
        value = e.value(f"fptrunc double {value} to float")
    elif i.type in _HALVES:
        value = _cut(e, value, i)
    write_float(e, i, value)


def _circular(e: Emitter, value: str, function: str) -> str:
    """sin or cos of an f32, given as a double: of its whole number of units of a turn."""
    size = e.call("double", "llvm.fabs.f64", ("double", value))
    product = e.value(f"bitcast double {e.value(f'fmul double {size}, {_TURN!r}')} to i64")
    # As many bits as an f32 has; the product itself is exact.
    turns = e.value(f"bitcast i64 {e.value(f'and i64 {product}, {-1 << 29}')} to double")
    part = e.value(f"fsub double {turns}, {e.call('double', 'llvm.floor.f64', ('double', turns))}")
    is_finite = e.value(f"fcmp ord double {part}, {part}")
    known = e.select(is_finite, "double", part, "0.0")
    units = e.value(
        f"fptosi double {e.value(f'fmul double {known}, {2.0**_TURN_BITS:.1f}')} to i64"
    )
    # The nearest quarter, and the signed rest: so a whole quarter gives an exact result.
    eighth = 1 << (_TURN_BITS - 3)
    quarter = e.value(f"lshr i64 {e.value(f'add i64 {units}, {eighth}')}, {_TURN_BITS - 2}")
    rest = e.value(f"sub i64 {units}, {e.value(f'shl i64 {quarter}, {_TURN_BITS - 2}')}")
    angle = e.value(f"sitofp i64 {rest} to double")
    angle = e.value(f"fmul double {angle}, {2 * math.pi / 2**_TURN_BITS!r}")
    if function == "cos":
        quarter = e.value(f"add i64 {quarter}, 1")
    is_odd = e.value(f"trunc i64 {quarter} to i1")
    is_opposite = e.value(f"trunc i64 {e.value(f'lshr i64 {quarter}, 1')} to i1")
    found = e.select(
        is_odd,
        "double",
        e.call("double", "cos", ("double", angle)),
        e.call("double", "sin", ("double", angle)),
    )
    found = e.select(is_opposite, "double", e.value(f"fneg double {found}"), found)
    if function == "sin":
        is_negative = e.value(f"icmp slt i64 {e.value(f'bitcast double {value} to i64')}, 0")
        found = e.select(is_negative, "double", e.value(f"fneg double {found}"), found)
    return e.select(is_finite, "double", found, part)


def _cut(e: Emitter, value: str, i: Instruction) -> str:
    """The result of ex2 or tanh as a half: rounded as hardware does inside, then cut off."""
    single = e.value(f"fptrunc double {value} to float")
    if i.opcode == "tanh":
        bits = e.value(f"add i32 {e.value(f'bitcast float {single} to i32')}, 32")
        single = e.value(f"bitcast i32 {e.value(f'and i32 {bits}, -64')} to float")
    wide = e.value(f"fpext float {single} to double")
    half = from_double(e, wide, i.type, "rz")
    if i.type is T.BF16:
        return half
    is_beyond = e.value(f"fcmp oge double {wide}, 65536.0")
    return e.select(is_beyond, "i16", str(0x7C00), half)


def _is_gross(i: Instruction) -> bool:
    return i.type is T.F64 and "ftz" in i.modifiers


def reciprocal(e: Emitter, i: Instruction) -> None:
    """Lower rcp."""
    if _is_gross(i):
        _gross(e, i)
    else:
        arithmetic(e, i)


def _gross(e: Emitter, i: Instruction) -> None:
    """Lower .approx.ftz.f64: without subnormal numbers and without a lower word."""
    value = flush(e, e.read(i.operands[1], T.F64), T.F64)
    if i.opcode == "rsqrt":
        value = e.call("double", "llvm.sqrt.f64", ("double", value))
    found = flush(e, e.value(f"fdiv double 1.0, {value}"), T.F64)
    bits = e.value(f"add i64 {e.value(f'bitcast double {found} to i64')}, {1 << 31}")
    upper = e.value(f"and i64 {bits}, {-1 << 32}")
    is_nan = e.value(f"fcmp uno double {found}, {found}")
    upper = e.select(is_nan, "i64", str(0x7FFFFFFF << 32), upper)
    e.write(i.operands[0], e.value(f"bitcast i64 {upper} to double"), T.F64)


def quotient(e: Emitter, i: Instruction) -> None:
    """Lower div of floats: .approx gives a zero for a divisor beyond 2**126."""
    if "approx" not in i.modifiers:
        arithmetic(e, i)
        return
    number, divisor = read_float(e, i, 1), read_float(e, i, 2)
    size = e.call("float", "llvm.fabs.f32", ("float", divisor))
    is_huge = e.value(f"fcmp ogt float {size}, 0x47D0000000000000")
    signed = e.call("float", "llvm.copysign.f32", ("float", "0.0"), ("float", divisor))
    nothing = e.value(f"fmul float {number}, {signed}")
    found = e.value(f"fdiv float {number}, {divisor}")
    write_float(e, i, e.select(is_huge, "float", nothing, found))
