"""Cellar. Atomics on several numbers that lie side by side.

PTX ISA, "atom" and "red": each scalar of a packed or vector type is atomic by itself, and the whole
need not be. So each scalar becomes one atomic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Sink, Vector
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.expansion.instructions.packed_arithmetic import PART_OF

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.expansion.rewriter import Parts, Rule

T = ScalarType
_COUNTS = ("v2", "v4", "v8")
_HALVES = (T.F16X2, T.BF16X2)


def _atomic(parts: Parts, instruction: Instruction) -> bool:
    operands = list(instruction.operands)
    result: Operand = operands.pop(0) if instruction.opcode == "atom" else Sink()
    address, value, *_policy = operands
    count = instruction.vector_size
    if count == 1 and instruction.type not in _HALVES:
        return False
    if not isinstance(address, Address):
        return False
    values = value.elements if isinstance(value, Vector) else (value,)
    results = result.elements if isinstance(result, Vector) else (result,) * count
    if len(values) != count or len(results) != count:
        return False
    modifiers = tuple(each for each in instruction.modifiers if each not in _COUNTS)
    type_ = instruction.type
    found = []
    for index, (each, target) in enumerate(zip(values, results, strict=True)):
        place = replace(address, offset=address.offset + index * type_.size)
        if type_ in _HALVES:
            found.append(_pair(parts, instruction, modifiers, place, each, target))
        else:
            found.append(_one(parts, instruction, modifiers, type_, place, each, target))
    # Only now: a result may be a register that holds the address or a value.
    for target, old in zip(results, found, strict=True):
        if old is not None:
            parts.write(target, old, T(f"b{type_.bits}"))
    return True


def _one(
    parts: Parts,
    instruction: Instruction,
    modifiers: tuple[str, ...],
    type_: ScalarType,
    address: Address,
    value: Operand,
    target: Operand,
) -> Operand | None:
    """Emit one atomic; return its old value, if the instruction returns one."""
    bits = T(f"b{type_.bits}")
    name = ".".join((instruction.opcode, *modifiers, type_.value))
    if instruction.opcode == "red":
        parts.settle(name, address, value)
        return None
    old: Operand = Sink() if isinstance(target, Sink) else parts.register(bits)
    parts.settle(name, old, address, value)
    return None if isinstance(target, Sink) else old


def _pair(
    parts: Parts,
    instruction: Instruction,
    modifiers: tuple[str, ...],
    address: Address,
    value: Operand,
    target: Operand,
) -> Operand | None:
    part = PART_OF[instruction.type]
    olds = []
    for index, half in enumerate(parts.halves(value, part)):
        place = replace(address, offset=address.offset + index * part.size)
        olds.append(_one(parts, instruction, modifiers, part, place, half, target))
    low, high = olds
    if low is None or high is None:
        return None
    return parts.compute("mov.b32", Vector((low, high)))


RULES: dict[str, Rule] = {"atom": _atomic, "red": _atomic}
