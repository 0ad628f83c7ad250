"""Cellar. atom and red: plain load, compute, store.

Only one thread of a launch runs at a time here, so nothing can come between. The operations are not
atomic towards other launches or the host; a second opinion does not need that.
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
from cudasync.softgpu.oracle.instructions.integer import pick_extreme
from cudasync.softgpu.oracle.instructions.load_store import address

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType
_HALVES = (T.F16, T.BF16)
OPERATIONS = frozenset({"add", "min", "max", "inc", "dec", "exch", "cas", "and", "or", "xor"})


def atomic(e: Emitter, i: Instruction) -> None:
    """Lower atom, which returns the old value, and red, which does not."""
    first = 1 if i.opcode == "atom" else 0
    operation = next((m for m in i.modifiers if m in OPERATIONS), None)
    if operation is None or i.vector_size > 1 or i.type in (T.F16X2, T.BF16X2, T.B128):
        e.refuse(f"this form of {i.opcode} is not implemented")
    if i.type in _HALVES and operation not in ("add", "min", "max"):
        e.refuse(f"this form of {i.opcode} is not implemented")
    # A cache policy may follow the values.
    last = first + (3 if operation == "cas" else 2)
    values = [e.read(operand, i.type) for operand in i.operands[first + 1 : last]]
    where = address(e, i, i.operands[first], i.type.size, is_write=True)
    type_ = llvm_type(i.type)
    old = e.value(f"load {type_}, ptr {where}, align 1")
    new = _result(e, operation, old, values, i.type)
    e.line(f"store {type_} {new}, ptr {where}, align 1")
    if i.opcode == "atom":
        e.write(i.operands[0], old, i.type)


def _result(e: Emitter, operation: str, old: str, values: list[str], type_: ScalarType) -> str:
    width = llvm_type(type_)
    value = values[0]
    if type_ in _HALVES:
        return _of_halves(e, operation, old, value, type_)
    match operation:
        case "exch":
            return value
        case "cas":
            is_expected = e.value(f"icmp eq {width} {old}, {value}")
            return e.select(is_expected, width, values[1], old)
        case "add":
            return e.value(f"{'fadd' if type_.is_float else 'add'} {width} {old}, {value}")
        case "min" | "max":
            if type_.is_float:
                e.refuse("atomic min and max of floating-point types are not implemented")
            return pick_extreme(e, operation, old, value, type_)
        case "inc":
            up = e.value(f"add {width} {old}, 1")
            return e.select(e.value(f"icmp uge {width} {old}, {value}"), width, "0", up)
        case "dec":
            down = e.value(f"sub {width} {old}, 1")
            is_zero = e.value(f"icmp eq {width} {old}, 0")
            is_beyond = e.value(f"icmp ugt {width} {old}, {value}")
            wraps = e.value(f"or i1 {is_zero}, {is_beyond}")
            return e.select(wraps, width, value, down)
    return e.value(f"{operation} {width} {old}, {value}")


def _of_halves(e: Emitter, operation: str, old: str, value: str, type_: ScalarType) -> str:
    if operation != "add":
        return least_or_most(e, operation, old, value, type_)
    wide = [to_double(e, each, type_) for each in (old, value)]
    return from_double(e, e.value(f"fadd double {wide[0]}, {wide[1]}"), type_, "rn")
