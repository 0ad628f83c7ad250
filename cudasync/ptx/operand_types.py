"""Floor 0. Whether registers fit the instruction that names them.

PTX is typed, and every reader of the IR relies on it: a register has the width that the
instruction's type says, and is a predicate exactly where a predicate is meant. In ld, st and cvt
a register may be wider than the type (PTX ISA, "Operand Size Exceeding Instruction-Type Size").
Whether `.f32` is added in a `.b32` register is nobody's concern: compilers do so.

Opcodes whose operands differ in type from each other are left to whoever executes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Operand, Pair, Register, Vector
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Instruction

# How many of the first operands have the instruction's type; the others are not looked at.
_UNIFORM = {
    **dict.fromkeys(
        ("abs", "brev", "cnot", "cos", "ex2", "lg2", "mov", "neg", "not", "rcp", "rsqrt"), 2
    ),
    **dict.fromkeys(("shl", "shr", "sin", "sqrt", "tanh"), 2),
    **dict.fromkeys(
        ("add", "addc", "and", "bfi", "copysign", "div", "max", "min", "mul", "or", "rem"), 3
    ),
    **dict.fromkeys(("selp", "sub", "subc", "xor"), 3),
    **dict.fromkeys(("fma", "mad", "madc"), 4),
}
_SCALAR_TYPE_COUNT = 1


def misfit(instruction: Instruction) -> str | None:
    """What is wrong with the types of the operands, as far as this module knows; else None."""
    opcode = instruction.opcode
    operands = instruction.operands
    count = _UNIFORM.get(opcode)
    if count is not None:
        if len(instruction.types) != _SCALAR_TYPE_COUNT or "wide" in instruction.modifiers:
            return None
        return _exact(operands[:count], instruction.type)
    match opcode:
        case "ld" | "ldu":
            return _address(operands[1]) or _at_least((operands[0],), instruction)
        case "st":
            return _address(operands[0]) or _at_least(operands[1:2], instruction)
        case "setp" if instruction.types:
            return _exact((operands[0],), ScalarType.PRED) or _exact(
                operands[1:3], instruction.type
            )
        case "cvt" if len(instruction.types) == len(operands) == 2:
            return _wide_enough((operands[0],), instruction.types[0]) or _wide_enough(
                (operands[1],), instruction.types[1]
            )
    return None


def _exact(operands: Iterable[Operand], type_: ScalarType) -> str | None:
    for register in _registers(operands):
        if register.type.bits != type_.bits:
            return _sentence(register, type_)
    return None


def _at_least(operands: Iterable[Operand], instruction: Instruction) -> str | None:
    if not instruction.types:
        return None
    elements: list[Operand] = []
    for operand in operands:
        elements += operand.elements if isinstance(operand, Vector) else (operand,)
    return _wide_enough(elements, instruction.type)


def _wide_enough(operands: Iterable[Operand], type_: ScalarType) -> str | None:
    for register in _registers(operands):
        is_predicate = register.type is ScalarType.PRED
        if register.type.bits < type_.bits or is_predicate is not (type_ is ScalarType.PRED):
            return _sentence(register, type_)
    return None


def _address(operand: Operand) -> str | None:
    if isinstance(operand, Address) and isinstance(operand.base, Register):
        type_ = operand.base.type
        if type_.bits < ScalarType.B32.bits or type_.is_float:
            return f"{operand.base.name} is of type {type_!r}, which is no address"
    return None


def _registers(operands: Iterable[Operand]) -> list[Register]:
    found: list[Register] = []
    for operand in operands:
        if isinstance(operand, Register):
            found.append(operand)
        elif isinstance(operand, Pair):
            found += [
                each for each in (operand.first, operand.second) if isinstance(each, Register)
            ]
    return found


def _sentence(register: Register, type_: ScalarType) -> str:
    return f"{register.name} is of type {register.type!r}, which does not fit {type_!r}"
