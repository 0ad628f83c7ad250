"""Floor 0. What arithmetic leaves of a pointer: all of it, a piece, or a number.

The terms and the reasons are those of `origins`. An unknown operation leaves all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.access_analysis.flow_graph import Move
from cudasync.ptx.ir import Address, Integer, Register, Vector
from cudasync.ptx.liveness import defs
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.ptx.ir import Function, Instruction, Operand
    from cudasync.ptx.webs import Webs

HALF_BITS = 32
# Nobody scales an index this far: such a shift assembles a pointer, or removes its tag.
_LEAST_FAR_SHIFT = 16
_WORD = (1 << 64) - 1

# The source operands, by position, whose addresses can survive in the result. Of an opcode that is
# not here, all can. What is assumed: no program multiplies an address, or divides it, and uses the
# result as that address (by 1, or by a power of two, whose product is a shift).
SURVIVORS: dict[str, tuple[int, ...]] = {
    # Counts, positions, comparisons, masks and votes.
    **dict.fromkeys(("bfind", "bmsk", "clz", "cnot", "fns", "match", "popc", "vote"), ()),
    # Products and quotients.
    **dict.fromkeys(("div", "mul", "mul24", "rem"), ()),
    # A product, or a sum of products, is added to the last operand.
    **dict.fromkeys(("dp2a", "dp4a", "fma", "mad", "mad24", "madc"), (2,)),
}
# Opcodes that give an operand's bits unchanged, or with another sign, even if their type is a
# float's. Other arithmetic of floats gives numbers.
_KEEPS_BITS = frozenset(
    {"abs", "copysign", "max", "min", "mov", "neg", "prmt", "selp", "shfl", "slct"}
)


def surviving(instruction: Instruction, sources: Sequence[Operand]) -> list[Operand]:
    """The operands among `sources` whose addresses can survive in the result."""
    places = SURVIVORS.get(instruction.opcode)
    if is_float(instruction) and instruction.opcode not in _KEEPS_BITS:
        return []
    return list(sources) if places is None else [sources[at] for at in places if at < len(sources)]


def move_of(instruction: Instruction) -> Move:
    """How the result derives from the surviving operands together."""
    if instruction.opcode == "shl" and _bits(instruction) > HALF_BITS:
        by = _constant(instruction, 2)
        # A pointer that is shifted up a little is a scaled number. Pieces stay pieces.
        return Move.JOINED if by is None or by >= _LEAST_FAR_SHIFT else Move.SCALED
    return Move.SAME


def leaves_a_piece(instruction: Instruction) -> bool:
    """Whether the result has at most 32 bits of the operands, whatever its register's width."""
    opcode = instruction.opcode
    if opcode == "cvt":
        return any(each.bits <= HALF_BITS for each in instruction.types)
    if opcode == "shr":
        by = _constant(instruction, 2)
        return by is not None and by >= HALF_BITS
    if opcode == "bfe":
        length = _constant(instruction, 3)
        return length is not None and length <= HALF_BITS
    if opcode == "and":
        masks = (_constant(instruction, 1), _constant(instruction, 2))
        return any(mask is not None and mask & _WORD < 1 << HALF_BITS for mask in masks)
    return False


def joined_elements(instruction: Instruction) -> tuple[list[Operand], list[Operand]]:
    """The operands that go into the upper half of a 64-bit result, and the other operands.

    Both are empty if the instruction does not join parts.
    """
    operands = instruction.operands
    if instruction.opcode == "mov" and len(operands) == 2 and isinstance(operands[1], Vector):
        elements = list(operands[1].elements)
        half = len(elements) // 2 if _bits(instruction) == 2 * HALF_BITS else 0
        return elements[half:], elements[:half]
    if instruction.opcode == "bfi" and _bits(instruction) > HALF_BITS:
        return [operands[1]], [operands[2]]
    return [], []


class FarShifts:
    """Shifts up by 32 bits or more that a later shift down undoes: together they cut a number.

    Compilers write a scaled `(int)x` of 64 bits like this: `shl.b64 t, x, 32; shr.s64 y, t, 30`.
    No bit of the upper half of `x` is in `y`.
    """

    def __init__(self, function: Function, webs: Webs) -> None:
        self._function = function
        self._webs = webs
        # The one instruction that defines a register, or a web of it; None if there are several.
        self._defining: dict[tuple[str, int | None], int | None] = {}
        for index, instruction in enumerate(function.body):
            for each in defs(instruction):
                key = each.name, webs.defined.get((index, each.name))
                self._defining[key] = None if key in self._defining else index

    def truncated(self, index: int) -> tuple[int, Operand] | None:
        """For a shift down that leaves the lower half of a value: its place, and the operand.

        None if the instruction at `index` is not such a shift.
        """
        down = self._function.body[index]
        if down.opcode != "shr" or _bits(down) <= HALF_BITS:
            return None
        source, back = down.operands[1], _constant(down, 2)
        if back is None or not isinstance(source, Register):
            return None
        key = source.name, self._webs.used.get((index, source.name))
        before = self._defining.get(key)
        if before is None:
            return None
        up = self._function.body[before]
        by = _constant(up, 2) if up.opcode == "shl" and _bits(up) > HALF_BITS else None
        if by is None or by < HALF_BITS or by - back >= _LEAST_FAR_SHIFT:
            return None
        return before, up.operands[1]


def is_float(instruction: Instruction) -> bool:
    return any(type_.is_float for type_ in instruction.types)


def addresses(operands: Iterable[Operand]) -> list[Operand]:
    """The addresses among the operands, including those in vectors."""
    found: list[Operand] = []
    for operand in operands:
        if isinstance(operand, Vector):
            found += addresses(operand.elements)
        elif isinstance(operand, Address):
            found.append(operand)
    return found


def _bits(instruction: Instruction) -> int:
    """The width of the instruction's type; a pointer's width if it names no known type."""
    return instruction.type.bits if instruction.types else 2 * HALF_BITS


def _constant(instruction: Instruction, place: int) -> int | None:
    """The operand at `place`, if it exists and is a constant."""
    operands = instruction.operands
    operand = operands[place] if place < len(operands) else None
    return operand.value if isinstance(operand, Integer) else None


def is_narrow(instruction: Instruction) -> bool:
    """True if the moved value has room for half a pointer at most."""
    return _bits(instruction) <= HALF_BITS


def is_generic(instruction: Instruction) -> bool:
    """True if its address may be of any state space."""
    return instruction.space is StateSpace.GENERIC


def load_move(instruction: Instruction) -> Move:
    """How the result of a load derives from its address."""
    return Move.LOAD if is_generic(instruction) else Move.LOAD_GLOBAL
