"""Cellar, jit. Finds the stride of each access in a loop from one trip to the next.

In a grid-stride loop no processor predicts the memory of a warp's next trip. The text gives it: an
address is a sum of multiples of registers, and so is the amount that a trip adds to each register.
The result is used only for prefetching, so it may be wrong, but it is the same each time: where
lanes take different paths in the loop, the last in the text counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from cudasync.ptx.ir import Address, Integer, Register
from cudasync.ptx.liveness import defs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow, Loop

# A sum: the factor of each register's value at the start of the trip, and under "" a constant.
Sum: TypeAlias = "dict[str, int]"


def find_strides(flow: Flow, loop: Loop) -> dict[int, Sum]:
    """The amount that a trip adds to the address of each access, by position, where it is known.

    The registers of the sums are registers that the loop does not change.
    """
    if any(each.header in loop for each in flow.loops if each != loop):
        return {}
    body = flow.function.body
    positions = [
        position
        for node in flow.nodes
        if node.index in loop
        for position in range(node.start, node.end)
    ]
    own = {register.name for position in positions for register in defs(body[position])}
    sums: dict[str, Sum | None] = {}
    addresses: dict[int, Sum] = {}
    for position in positions:
        instruction = body[position]
        place = next((each for each in instruction.operands if isinstance(each, Address)), None)
        if place is not None and isinstance(place.base, Register):
            address = _value(place.base, sums)
            if address is not None:
                addresses[position] = address
        found = _result(instruction, sums) if instruction.guard is None else None
        for register in defs(instruction):
            sums[register.name] = found
    found_strides: dict[int, Sum] = {}
    for position, address in addresses.items():
        stride = _stride(address, sums, own)
        if stride:
            found_strides[position] = stride
    return found_strides


def _stride(address: Sum, ends: Mapping[str, Sum | None], own: set[str]) -> Sum | None:
    """The increase of `address` in one trip."""
    total: Sum = {}
    for name, factor in address.items():
        if name not in own:
            continue
        end = ends[name]
        if end is None or end.get(name) != 1:
            return None
        step = {each: end[each] for each in end if each != name}
        if not own.isdisjoint(step):
            return None
        total = _plus(total, step, factor)
    return total


def _result(instruction: Instruction, sums: Mapping[str, Sum | None]) -> Sum | None:
    """The result of an instruction as a sum; None if it is not a sum."""
    if not instruction.types or instruction.type.is_float:
        return None
    operands = instruction.operands[1:]
    match instruction.opcode:
        case "mov" | "cvt" | "cvta":
            return _value(operands[0], sums)
        case "add":
            return _both(operands, sums, 1)
        case "sub":
            return _both(operands, sums, -1)
        case "mul":
            return _product(operands, sums)
        case "shl":
            value, count = operands
            shift = count.value & 63 if isinstance(count, Integer) else None
            return None if shift is None else _times(_value(value, sums), 1 << shift)
        case "mad":
            product, more = _product(operands[:2], sums), _value(operands[2], sums)
            return None if product is None or more is None else _plus(product, more, 1)
        case _:
            return None


def _value(operand: Operand, sums: Mapping[str, Sum | None]) -> Sum | None:
    if isinstance(operand, Integer):
        return {"": operand.value}
    if isinstance(operand, Register):
        return sums.get(operand.name, {operand.name: 1})
    return None


def _both(operands: Sequence[Operand], sums: Mapping[str, Sum | None], sign: int) -> Sum | None:
    first, second = (_value(each, sums) for each in operands)
    return None if first is None or second is None else _plus(first, second, sign)


def _product(operands: Sequence[Operand], sums: Mapping[str, Sum | None]) -> Sum | None:
    first, second = operands
    if isinstance(first, Integer):
        first, second = second, first
    return _times(_value(first, sums), second.value) if isinstance(second, Integer) else None


def times(value: Sum, factor: int) -> Sum:
    """The sum multiplied by `factor`."""
    return _plus({}, value, factor)


def _times(value: Sum | None, factor: int) -> Sum | None:
    return None if value is None else times(value, factor)


def _plus(first: Sum, second: Sum, factor: int) -> Sum:
    """first + factor * second, without zero terms."""
    total = dict(first)
    for name, count in second.items():
        total[name] = total.get(name, 0) + factor * count
    return {name: count for name, count in total.items() if count}
