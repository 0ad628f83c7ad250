"""Floor 0. The type of number that a kernel shows for the memory behind each of its parameters.

An access shows a type if it loads, stores or changes one element as that type. It also shows a type
if the loaded or stored bits take part in arithmetic of that type. Newer compilers load every float
as `.b32`, so the values decide. Values that are moved unchanged count as one value. A vector access
by itself shows nothing, because it copies any bits.

A value that is used as a float and in another way shows nothing. Integers have operations on bits
too, so a value shows an integer if some arithmetic takes it for one, and none for a float. Older
compilers write `.u32` for anything of four bytes but floats. So such a load or store shows no
integer by itself, and its value no float: the source has integers there, and takes their bits.
Whether integers are signed is not asked: C mixes the two freely.

The answer errs on one side only: a parameter has a type if every access through it shows that
type. Some operations on integers are usual on the bits of floats too, and show nothing:
- logic, shifts and conversions between integers;
- tests for equality and for the sign;
- atomic maxima and minima, which order positive floats as well.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Integer, Operand, Pair, Register, Vector
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from cudasync.ptx.access_analysis.flow_graph import Flow, MemoryAccess
    from cudasync.ptx.ir import Instruction

    # What the uses of a value show: floating types, and other uses.
    Shown: TypeAlias = "ScalarType | Use"
    Seen: TypeAlias = set[Shown]


@unique
class Use(Enum):
    """A use of a value that shows no floating type."""

    INTEGER = "arithmetic of integers"
    BITS = "anything else"


# The element type of each type that instructions have.
_ELEMENT = {
    ScalarType.F16: ScalarType.F16,
    ScalarType.F16X2: ScalarType.F16,
    ScalarType.BF16: ScalarType.BF16,
    ScalarType.BF16X2: ScalarType.BF16,
    ScalarType.TF32: ScalarType.F32,
    ScalarType.F32: ScalarType.F32,
    ScalarType.F32X2: ScalarType.F32,
    ScalarType.F64: ScalarType.F64,
}
# Two floats in a register: sources have them as a pair, or as an integer of that size.
_TWO = {
    ScalarType.F16: ScalarType.F16X2,
    ScalarType.BF16: ScalarType.BF16X2,
    ScalarType.F32: ScalarType.F32X2,
}
# By the size of an access.
_INTEGERS = {2: ScalarType.S16, 4: ScalarType.S32, 8: ScalarType.S64}
# All operands of these instructions, apart from predicates, have the instruction's one type.
_ARITHMETIC = frozenset(
    {
        "abs", "add", "copysign", "cos", "div", "ex2", "fma", "lg2", "mad", "max", "min", "mul",
        "neg", "rcp", "rsqrt", "setp", "sin", "sqrt", "sub", "tanh", "testp",
    }
)  # fmt: skip
# Those that integers have, and others of integers alone; of `.wide` the result has twice the size.
_INTEGER_ARITHMETIC = frozenset(
    {
        "abs", "add", "addc", "div", "mad", "mad24", "madc", "max", "min", "mul", "mul24", "neg",
        "rem", "sad", "setp", "sub", "subc",
    }
)  # fmt: skip
_PAIRS = frozenset({ScalarType.S16X2, ScalarType.U16X2})
_COUNTS = frozenset({"add", "inc", "dec"})
_EQUALITIES = frozenset({"eq", "ne"})
# The fragments of wmma are not values of one element.
_SAYS_NOTHING = frozenset({"wmma"})
_MOVES_MEMORY = frozenset({"ld", "ldu", "st"})
_ATOMICS = frozenset({"atom", "red"})
_EXCHANGES = frozenset({"exch", "cas"})


class ValueTypes:
    """Values of a flow, by the slots of their registers, and the types seen for each."""

    __slots__ = ("_parents", "_seen")

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}
        # By the root of a value: its types.
        self._seen: dict[int, Seen] = {}

    def of(self, slots: Iterable[int]) -> Seen:
        """All that the uses of the values in these slots show."""
        found: Seen = set()
        for slot in slots:
            found |= self._seen.get(self._root(slot), set())
        return found

    def note(
        self,
        instruction: Instruction,
        used: Callable[[Register], int],
        defined: Callable[[Register], int],
        count_defined: int,
    ) -> None:
        """Note what `instruction` shows of its operands; it defines the first `count_defined`."""
        opcode = instruction.opcode
        if opcode in _SAYS_NOTHING:
            return
        is_conversion = opcode == "cvt" and len(instruction.types) == 2
        data: list[int] = []
        for place, operand in enumerate(instruction.operands):
            slot_of = defined if place < count_defined else used
            slots = [slot_of(register) for register in _registers(operand)]
            if is_conversion:
                self._see(slots, _converted(instruction.types, place))
            elif isinstance(operand, Address) or (opcode == "shfl" and place > 1):
                self._see(slots, Use.BITS)
            else:
                data += slots
        if _is_move(instruction):
            self._join(data)
        elif not _is_untold(instruction):
            self._see(data, _told(instruction))

    def _see(self, slots: Iterable[int], shown: Shown) -> None:
        for slot in slots:
            self._seen.setdefault(self._root(slot), set()).add(shown)

    def _join(self, slots: Sequence[int]) -> None:
        for slot in slots[1:]:
            first, other = self._root(slots[0]), self._root(slot)
            if first != other:
                self._parents[other] = first
                if other in self._seen:
                    self._seen.setdefault(first, set()).update(self._seen.pop(other))

    def _root(self, slot: int) -> int:
        parents = self._parents
        while (parent := parents.get(slot, slot)) != slot:
            parents[slot] = parents.get(parent, parent)
            slot = parent
        return slot


def element_types(flow: Flow) -> tuple[ScalarType | None, ...]:
    """The one type shown for each parameter of a settled flow's kernel.

    A floating type, such as `.f16`, `.f16x2` if all accesses move two at a time, or `.s16`, `.s32`
    or `.s64` for integers of that size, signed or not.
    """
    seen: dict[int, set[ScalarType | None]] = {}
    direct = flow.origins.direct
    for access in flow.accesses:
        shown = _shown(flow, access)
        for origin in flow.origins.which(flow.slots[access.address] & direct):
            parameter = flow.known[origin].parameter
            if parameter is not None:
                seen.setdefault(parameter, set()).add(shown)
    found: list[ScalarType | None] = []
    for parameter in range(len(flow.kernel.parameters)):
        types = seen.get(parameter, set())
        # Pairs, and the last one alone.
        types -= {_TWO[each] for each in types if each in _TWO}
        found.append(next(iter(types)) if len(types) == 1 else None)
    return tuple(found)


def _shown(flow: Flow, access: MemoryAccess) -> ScalarType | None:
    """The one type that an access shows; None if it shows none, or several."""
    moved = access.element
    if moved is None:
        return None
    by_itself: Seen = set() if access.shown is None else {access.shown}
    shown = flow.values.of(access.data) | by_itself
    if len(shown) == 1:
        (only,) = shown
        if isinstance(only, ScalarType):
            return _as_moved(only, moved)
    if not shown <= {Use.INTEGER, Use.BITS}:
        return None
    # Each element of a vector, since a vector access copies structures as well.
    if access.shown is Use.INTEGER or (
        access.data and all(Use.INTEGER in flow.values.of([slot]) for slot in access.data)
    ):
        return _INTEGERS.get(moved.size)
    return None


def _as_moved(element: ScalarType, moved: ScalarType) -> ScalarType | None:
    """A floating type as memory has it, from which values of type `moved` are loaded."""
    if moved.size == 2 * element.size:
        return _TWO.get(element)
    if moved.size != element.size:
        return None
    # Compilers write `.u16` for a half.
    is_integer = moved.value[0] in "su" and moved.size > ScalarType.F16.size
    return None if is_integer else element


def shown_by(instruction: Instruction) -> Shown | None:
    """What an access shows of the one element that it moves, by its own type."""
    if not instruction.types or instruction.vector_size > 1:
        return None
    element = _element(instruction.type)
    if element is not None:
        return element
    return Use.INTEGER if _told(instruction) is Use.INTEGER else None


def _element(type_: ScalarType) -> ScalarType | None:
    return _ELEMENT.get(type_)


def _registers(operand: Operand) -> list[Register]:
    """The registers of an operand that hold values; predicates do not."""
    match operand:
        case Register(type=type_):
            return [] if type_ is ScalarType.PRED else [operand]
        case Vector(elements=elements):
            return [register for each in elements for register in _registers(each)]
        case Address(base=Register() as base):
            return [base]
        case Pair(first=Register() as first):
            return _registers(first)
    return []


def _is_move(instruction: Instruction) -> bool:
    """True if the result is one of the sources, bit for bit."""
    if instruction.opcode == "mov":
        return not any(isinstance(each, Vector) for each in instruction.operands)
    return instruction.opcode in ("selp", "shfl")


def _is_untold(instruction: Instruction) -> bool:
    """True for bits that move to or from memory without showing a type."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in _MOVES_MEMORY and instruction.types:
        is_float = instruction.type.is_float
        is_bits = instruction.type.value[0] in ("b", "u") and not is_float
        is_argument = opcode == "st" and any(each.startswith("param") for each in modifiers)
        return (is_bits and not is_argument) or (is_float and instruction.vector_size > 1)
    return opcode in _ATOMICS and not _EXCHANGES.isdisjoint(modifiers)


def _told(instruction: Instruction) -> Shown:
    """What an instruction shows of its values."""
    opcode = instruction.opcode
    if len(instruction.types) != 1:
        return Use.BITS
    element = _element(instruction.type)
    if element is not None:
        is_telling = opcode in _ARITHMETIC or opcode in _MOVES_MEMORY or opcode in _ATOMICS
        return element if is_telling else Use.BITS
    if opcode in _MOVES_MEMORY:
        is_integer = instruction.type.is_signed
    elif opcode in _ATOMICS:
        is_integer = not _COUNTS.isdisjoint(instruction.modifiers)
    else:
        is_integer = opcode in _INTEGER_ARITHMETIC and not _is_test_of_bits(instruction)
    is_scalar = instruction.type.value[0] in "su" and instruction.type not in _PAIRS
    return Use.INTEGER if is_integer and is_scalar else Use.BITS


def _is_test_of_bits(instruction: Instruction) -> bool:
    """True for comparisons that are usual on the bits of a float."""
    if instruction.opcode != "setp":
        return False
    is_test_of_sign = any(
        isinstance(each, Integer) and each.value in (0, -1) for each in instruction.operands
    )
    return is_test_of_sign or not _EQUALITIES.isdisjoint(instruction.modifiers)


def _converted(types: Sequence[ScalarType], place: int) -> Shown:
    """What a conversion shows of its result (place 0) or of its source."""
    element = _element(types[min(place, 1)])
    if element is not None:
        return element
    # Between integers, it may be a part of a number that is cut or widened.
    is_to_or_from_float = any(each.is_float for each in types)
    return Use.INTEGER if is_to_or_from_float and types[min(place, 1)].is_integer else Use.BITS
