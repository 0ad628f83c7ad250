"""Cellar. The results of warp-wide instructions, as functions of the operands of all lanes.

PTX ISA, "Parallel Synchronization and Communication Instructions". Each function takes the
operands that the lanes posted (lane number to words) and returns the results of each lane.
"""

from __future__ import annotations

import math
import struct
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from cudasync.softgpu.oracle.interpreter.ldmatrix import collect_rows, distribute_rows, turn_tile
from cudasync.softgpu.oracle.interpreter.matrix_multiply import multiply

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx.ir import Instruction

Words: TypeAlias = tuple[int, ...]
Lanes: TypeAlias = dict[int, Words]


def evaluate(instruction: Instruction, lanes: Lanes) -> Lanes:
    """The results of every participating lane."""
    match instruction.opcode:
        case "shfl":
            return {lane: _shuffle(instruction, lane, lanes) for lane in lanes}
        case "vote":
            return _vote(instruction, lanes)
        case "match":
            return _match(instruction, lanes)
        case "redux":
            return _reduce(instruction, lanes)
        case "activemask":
            return dict.fromkeys(lanes, (_mask(lanes),))
        case "elect":
            leader = min(lanes)
            return {lane: (leader, int(lane == leader)) for lane in lanes}
        case "mma" | "wmma":
            return multiply(instruction, lanes)
        case "ldmatrix":
            return distribute_rows(instruction, lanes)
        case "stmatrix":
            return collect_rows(instruction, lanes)
        case "movmatrix":
            return turn_tile(lanes)
    return dict.fromkeys(lanes, ())


def _mask(lanes: Lanes) -> int:
    return sum(1 << lane for lane in lanes)


def _shuffle(instruction: Instruction, lane: int, lanes: Lanes) -> Words:
    """The value of another lane, and whether that lane is in range."""
    own, b, c, *_ = lanes[lane]
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    last = (lane & segment) | (clamp & ~segment)
    first = lane & segment
    if "up" in instruction.modifiers:
        source, inside = lane - b, lane - b >= last
    elif "down" in instruction.modifiers:
        source, inside = lane + b, lane + b <= last
    elif "bfly" in instruction.modifiers:
        source, inside = lane ^ b, lane ^ b <= last
    else:
        source = first | (b & ~segment)
        inside = source <= last
    if not inside:
        source = lane
    # A read from a lane that does not take part is undefined. Here it gives the lane's own value.
    return lanes[source][0] if source in lanes else own, int(inside)


def _vote(instruction: Instruction, lanes: Lanes) -> Lanes:
    ballot = sum(1 << lane for lane, words in lanes.items() if words[0])
    everyone = _mask(lanes)
    if "ballot" in instruction.modifiers:
        result = ballot
    elif "all" in instruction.modifiers:
        result = int(ballot == everyone)
    elif "any" in instruction.modifiers:
        result = int(ballot != 0)
    else:
        result = int(ballot in (0, everyone))
    return dict.fromkeys(lanes, (result,))


def _match(instruction: Instruction, lanes: Lanes) -> Lanes:
    same = {
        lane: sum(1 << other for other in lanes if lanes[other][0] == words[0])
        for lane, words in lanes.items()
    }
    if "any" in instruction.modifiers:
        return {lane: (mask, 1) for lane, mask in same.items()}
    everyone = _mask(lanes)
    is_same = next(iter(same.values())) == everyone
    return dict.fromkeys(lanes, (everyone if is_same else 0, int(is_same)))


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def _reduce(instruction: Instruction, lanes: Lanes) -> Lanes:
    operation = next(m for m in instruction.modifiers if m in _OPERATIONS)
    values = [words[0] for words in lanes.values()]
    if instruction.type.is_float:
        return dict.fromkeys(lanes, (_extreme(instruction, operation, values),))
    if instruction.type.is_signed:
        values = [value - (1 << 32) if value >> 31 else value for value in values]
    return dict.fromkeys(lanes, (reduce(_OPERATIONS[operation], values) % (1 << 32),))


def _extreme(instruction: Instruction, operation: str, values: list[int]) -> int:
    """The least or greatest f32, given and returned as bits."""
    if "abs" in instruction.modifiers:
        values = [value & 0x7FFFFFFF for value in values]
    floats = [struct.unpack("<f", struct.pack("<I", value))[0] for value in values]
    # -0.0 is less than +0.0.
    numbers = [(x, math.copysign(1, x), bits) for x, bits in zip(floats, values, strict=True)]
    numbers = [each for each in numbers if not math.isnan(each[0])]
    if not numbers or ("NaN" in instruction.modifiers and len(numbers) < len(values)):
        return 0x7FFFFFFF
    return (min if operation == "min" else max)(numbers)[2]
