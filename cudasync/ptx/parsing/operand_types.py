"""Floor 0. Checks that operands fit their instruction.

PTX is typed, and every reader of the IR relies on it. A result is a register. A register has the
width of the instruction's type. It is a predicate exactly where the instruction wants a predicate.
In ld, st and cvt, a register may be wider than the type (PTX ISA, "Operand Size Exceeding
Instruction-Type Size"). A `.f32` addition in a `.b32` register is accepted: compilers write it.

Opcodes that are not named here are left to the lowerings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import (
    Address,
    Float,
    Integer,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Instruction

# The kind of each operand: d a result and s a source of the instruction's type; D a result and
# S a source of twice its width; r a result and w a source of 32 bits; p a predicate.
_SIGNATURES = {
    "ds": "abs brev cnot cos ex2 lg2 neg not rcp rsqrt sin sqrt tanh",
    "dsss": "add addc and copysign div fma mad madc max min mul or rem sad sub subc xor",
    "dsw": "shl shr",
    "dssw": "shf",
    "dsww": "bfe",
    "dssww": "bfi",
    "dssp": "selp",
    "rs": "bfind clz popc",
}
_SIGNATURE_OF = {name: letters for letters, names in _SIGNATURES.items() for name in names.split()}
_WIDE = {"mul": "Dss", "mad": "DssS"}

_BITS_32 = ScalarType.B32
_TWICE = {16: ScalarType.B32, 32: ScalarType.B64, 64: ScalarType.B128}
# Types whose constants are written in more than one way.
_HALVES = frozenset({ScalarType.F16, ScalarType.F16X2, ScalarType.BF16, ScalarType.BF16X2})
# Forms of ld, st, atom and red with other operands.
_OTHER_FORMS = frozenset({"async", "bulk"})


def misfit(instruction: Instruction) -> str | None:
    """What is wrong with the operands; None if this module finds nothing."""
    opcode = instruction.opcode
    operands = instruction.operands
    if not instruction.types:
        return None
    letters = _SIGNATURE_OF.get(opcode)
    if letters is not None:
        if len(instruction.types) > 1:
            return None
        if "wide" in instruction.modifiers:
            letters = _WIDE.get(opcode, "")
        return _signature(letters, operands, instruction.type)
    match opcode:
        case "mov" if instruction.vector_size == 1:
            return _mov(operands[0], operands[1], instruction.type)
        case "ld" | "ldu":
            return _address(operands[1]) or _memory(operands[0], instruction, is_result=True)
        case "st" if _OTHER_FORMS.isdisjoint(instruction.modifiers):
            return _address(operands[0]) or _memory(operands[1], instruction, is_result=False)
        case "atom" | "red" if _OTHER_FORMS.isdisjoint(instruction.modifiers):
            return _atomic(instruction)
        case "setp":
            return _setp(instruction)
        case "cvt" if len(instruction.types) == len(operands) == 2:
            if found := _wide_enough(operands[0], instruction.types[0], is_result=True):
                return found
            # Besides mov, only cvt reads special registers; old compilers wrote %tid.x as a .u16.
            if isinstance(operands[1], Special):
                return _special(operands[1], instruction.types[1])
            return _wide_enough(operands[1], instruction.types[1], is_result=False)
    return None


def _signature(letters: str, operands: tuple[Operand, ...], type_: ScalarType) -> str | None:
    for letter, operand in zip(letters, operands, strict=False):
        match letter:
            case "d":
                found = _result(operand, type_)
            case "s":
                found = _source(operand, type_)
            case "r":
                found = _result(operand, _BITS_32)
            case "w":
                found = _source(operand, _BITS_32)
            case "p":
                found = _predicate(operand)
            case "D":
                found = _result(operand, _TWICE.get(type_.bits, type_))
            case _:
                found = _source(operand, _TWICE.get(type_.bits, type_))
        if found is not None:
            return found
    return None


def _result(operand: Operand, type_: ScalarType) -> str | None:
    if not isinstance(operand, Register):
        return "a result must be a register"
    return None if operand.type.bits == type_.bits else _sentence(operand, type_)


def _source(operand: Operand, type_: ScalarType) -> str | None:
    if isinstance(operand, Register):
        return None if operand.type.bits == type_.bits else _sentence(operand, type_)
    return _constant(operand, type_)


def _constant(operand: Operand, type_: ScalarType) -> str | None:
    if not isinstance(operand, Integer | Float):
        return "a source must be a register or a number"
    if type_ in _HALVES:
        return None
    if isinstance(operand, Integer):
        return f"{operand.value} is not a number of type {type_!r}" if type_.is_float else None
    is_bits = type_.value[0] == "b" and type_.bits == operand.type.bits
    return None if type_.is_float or is_bits else f"a float is not a number of type {type_!r}"


def _predicate(operand: Operand) -> str | None:
    register = operand.register if isinstance(operand, Negated) else operand
    if isinstance(register, Integer):
        return None
    if isinstance(register, Register) and register.type is ScalarType.PRED:
        return None
    return "the last operand must be a predicate"


def _setp(instruction: Instruction) -> str | None:
    first, *sources = instruction.operands
    results = (first.first, first.second) if isinstance(first, Pair) else (first,)
    for result in results:
        if not isinstance(result, Sink) and (found := _result(result, ScalarType.PRED)):
            return found
    for source in sources[:2]:
        if found := _source(source, instruction.type):
            return found
    return None if len(sources) == 2 else _predicate(sources[2])


def _mov(target: Operand, source: Operand, type_: ScalarType) -> str | None:
    if isinstance(target, Vector) or isinstance(source, Vector):
        return _pieces(target, type_) or _pieces(source, type_)
    if found := _result(target, type_):
        return found
    match source:
        case Symbol():
            return None
        case Special():
            return _special(source, type_)
        case Negated(register=register) if type_ is ScalarType.PRED:
            return _source(register, type_)
    return _source(source, type_)


def _special(source: Special, type_: ScalarType) -> str | None:
    # Of a 32-bit register the low half may be read alone; other parts may not.
    if source.type.bits == type_.bits or (source.type.bits, type_.bits) == (32, 16):
        return None
    return f"{source.name} is of type {source.type!r}, which does not fit {type_!r}"


def _pieces(operand: Operand, type_: ScalarType) -> str | None:
    """Check one side of a mov that packs or unpacks: the whole, or its pieces."""
    if not isinstance(operand, Vector):
        return _source(operand, type_)
    count = len(operand.elements)
    for element in operand.elements:
        if isinstance(element, Register) and element.type.bits * count != type_.bits:
            return f"{count} elements of type {element.type!r} do not make {type_!r}"
    return None


def _memory(operand: Operand, instruction: Instruction, *, is_result: bool) -> str | None:
    """Check a target of ld or a source of st: a register, or a vector of as many as .v2 says."""
    count = instruction.vector_size
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(elements) != count or (count > 1 and not isinstance(operand, Vector)):
        return f"expected a vector of {count}" if count > 1 else "one register expected"
    for element in elements:
        if is_result and count > 1 and isinstance(element, Sink):
            continue
        if found := _wide_enough(element, instruction.type, is_result=is_result):
            return found
    return None


def _atomic(instruction: Instruction) -> str | None:
    operands: Iterable[Operand] = instruction.operands
    if instruction.opcode == "atom":
        result, *operands = operands
        if instruction.vector_size == 1 and not isinstance(result, Sink):
            found = _wide_enough(result, instruction.type, is_result=True)
            if found:
                return found
    address, *sources = operands
    if found := _address(address):
        return found
    if instruction.vector_size > 1 or len(instruction.types) > 1:
        return None
    # A cache policy may follow the values.
    count = 2 if "cas" in instruction.modifiers else 1
    for source in sources[:count]:
        if found := _source(source, instruction.type):
            return found
    return None


def _wide_enough(operand: Operand, type_: ScalarType, *, is_result: bool) -> str | None:
    if not isinstance(operand, Register):
        return "a result must be a register" if is_result else _constant(operand, type_)
    is_predicate = operand.type is ScalarType.PRED
    if operand.type.bits < type_.bits or is_predicate is not (type_ is ScalarType.PRED):
        return _sentence(operand, type_)
    return None


def _address(operand: Operand) -> str | None:
    if isinstance(operand, Vector):
        # A tensor or a texture, with its coordinates.
        return None
    if not isinstance(operand, Address):
        return "expected an address in brackets"
    if isinstance(operand.base, Register):
        type_ = operand.base.type
        if type_.bits < ScalarType.B32.bits or type_.is_float:
            return f"{operand.base.name} is of type {type_!r}, which cannot hold an address"
    return None


def _sentence(register: Register, type_: ScalarType) -> str:
    return f"{register.name} is of type {register.type!r}, which does not fit {type_!r}"
