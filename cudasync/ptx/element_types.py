"""Floor 0. The floating type that a kernel shows for the memory behind each of its parameters.

An access shows a type if it loads, stores or changes one element as that type. It also shows a type
if the loaded or stored bits take part in arithmetic of that type. Newer compilers load every float
as `.b32`, so the values decide. Values that are moved unchanged count as one value. A value that is
used as two types shows nothing. A vector access by itself shows nothing either, because it copies
any bits.

The answer errs on one side only: a parameter has a type if every access through it shows that
type. Integers get no type, because compilers write `.u32` for anything of four bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Operand, Pair, Register, Vector
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from cudasync.ptx.access_analysis.flow_graph import Flow, MemoryAccess
    from cudasync.ptx.ir import Instruction

    # The types that a value was seen to have; None for anything but a floating type.
    Seen: TypeAlias = set[ScalarType | None]

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
# All operands of these instructions, apart from predicates, have the instruction's one type.
_ARITHMETIC = frozenset(
    {
        "abs", "add", "copysign", "cos", "div", "ex2", "fma", "lg2", "mad", "max", "min", "mul",
        "neg", "rcp", "rsqrt", "setp", "sin", "sqrt", "sub", "tanh", "testp",
    }
)  # fmt: skip
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
        """All types that the values in these slots were seen to have."""
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
                self._see(slots, _element(instruction.types[min(place, 1)]))
            elif isinstance(operand, Address) or (opcode == "shfl" and place > 1):
                self._see(slots, None)
            else:
                data += slots
        if _is_move(instruction):
            self._join(data)
        elif not _is_untold(instruction):
            self._see(data, _told(instruction))

    def _see(self, slots: Iterable[int], element: ScalarType | None) -> None:
        for slot in slots:
            self._seen.setdefault(self._root(slot), set()).add(element)

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
    """The one floating type shown for each parameter of a settled flow's kernel."""
    seen: dict[int, Seen] = {}
    direct = flow.origins.direct
    for access in flow.accesses:
        shown = _shown(flow, access)
        for origin in flow.origins.which(flow.slots[access.address] & direct):
            parameter = flow.known[origin].parameter
            if parameter is not None:
                seen.setdefault(parameter, set()).update(shown)
    found: list[ScalarType | None] = []
    for parameter in range(len(flow.kernel.parameters)):
        types = seen.get(parameter, set())
        found.append(next(iter(types)) if len(types) == 1 else None)
    return tuple(found)


def _shown(flow: Flow, access: MemoryAccess) -> Seen:
    """The types that one access shows; {None} if it shows none."""
    shown = flow.values.of(access.data)
    if access.element is not None:
        shown.add(access.element)
    return shown or {None}


def element_of(instruction: Instruction) -> ScalarType | None:
    """The floating type of the one element that an access moves, by its own type."""
    if not instruction.types or instruction.vector_size > 1:
        return None
    return _element(instruction.type)


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


def _told(instruction: Instruction) -> ScalarType | None:
    """The floating type that an instruction gives its values; None for anything else."""
    opcode = instruction.opcode
    if len(instruction.types) == 1 and (
        opcode in _ARITHMETIC or opcode in _MOVES_MEMORY or opcode in _ATOMICS
    ):
        return _element(instruction.type)
    return None
