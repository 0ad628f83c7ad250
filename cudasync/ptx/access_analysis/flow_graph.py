"""Floor 0. A kernel and all the functions that it calls, as flows between slots.

A slot holds a set of origins. There is one slot for each register of each function, for each cell
of memory whose contents are followed, and for each constant set. The effects of instructions on
such sets are a list of steps, without order; their effects on memory are a list of accesses. Device
functions are joined to their callers at their parameters, with all calls of one function together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import TYPE_CHECKING

from cudasync.ptx.access_analysis.origins import Origins
from cudasync.ptx.element_types import ValueTypes
from cudasync.ptx.ir import Integer, SymbolAddress
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from cudasync.ptx.element_types import Shown
    from cudasync.ptx.ir import Function, Module, Variable
    from cudasync.ptx.types import ScalarType

# Cells that every flow has. GLOBAL collects the values stored to global memory. It has no address
# bit of its own, because every address of global memory leads to it.
LOCAL, SHARED, GLOBAL = 0, 1, 2

POINTER_SIZE = 8
_STRING_FORMAT = re.compile(rb"%[-+ #0-9.*]*s")
# No kernel takes more bytes of parameters in all; a text may declare any number.
_MOST_BYTES = 32764


@unique
class Move(Enum):
    """How a step's result comes from its sources."""

    SAME = "all that the sources may be"
    NUMBER = "sources multiplied or otherwise spoiled as pointers"
    SCALED = "sources moved up a little: of pieces pieces, of pointers numbers"
    JOINED = "sources moved to the upper half of a word, or stored in parts and loaded whole"
    LOAD = "what memory at the sources' addresses holds"
    LOAD_GLOBAL = "the same, where local and shared memory are excluded"


@dataclass(frozen=True, slots=True)
class Step:
    """`targets` may be what `move` makes of `sources`; all are slots."""

    move: Move
    targets: tuple[int, ...]
    sources: tuple[int, ...]
    # The targets have room for half a pointer at most, or get half a pointer at most.
    is_piece: bool = False


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """Global or generic memory at `address` is read, written, or both, by line `line` of the text.

    `stored` goes there; only a piece of each value if `is_piece`. `shown` is what the instruction
    by itself shows of the moved value, `element` the type that it writes (of one element of a
    vector), and `data` is where the value moves from or to.
    """

    address: int
    reads: bool
    writes: bool
    stored: tuple[int, ...] = ()
    is_generic: bool = False
    is_piece: bool = False
    line: int = 0
    shown: Shown | None = None
    element: ScalarType | None = None
    data: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a value: a parameter, a field of a parameter, or a variable of the module.

    `parameter` is its index, None for a variable; `offset` is the field's, in bytes.
    """

    name: str
    parameter: int | None
    offset: int = 0
    # Whether a pointer fits in it.
    is_pointer_like: bool = True


@dataclass(slots=True)
class Flow:
    """Slots, steps and accesses of one kernel, as they are collected."""

    module: Module
    kernel: Function
    variables: dict[str, Variable] = field(default_factory=dict)
    # The meaning of the bits of `origins`: parameters and their fields, then variables.
    known: list[Origin] = field(default_factory=list)
    origins: Origins = field(init=False)
    slots: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    accesses: list[MemoryAccess] = field(default_factory=list)
    # Slots of values that are used in a way that cannot be followed, and the line.
    lost: list[tuple[int, int]] = field(default_factory=list)
    # Slots of values that printf may read through, and the line.
    printed: list[tuple[int, int]] = field(default_factory=list)
    # Why the kernel may reach memory in other ways than through its parameters and variables.
    beyond: list[str] = field(default_factory=list)
    # By symbol: the addresses in its initial value.
    initial: dict[int, int] = field(default_factory=dict)
    cell_slots: list[int] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)
    # Functions that are reached. Those from `done` on have not been analysed.
    reached: list[str] = field(default_factory=list)
    # The types that the values in registers were seen to have.
    values: ValueTypes = field(default_factory=ValueTypes)
    # Places in `known`, by names of variables and of the kernel's parameters.
    _symbol_origins: dict[str, int] = field(default_factory=dict)
    _fields: dict[str, list[int]] = field(default_factory=dict)
    _registers: dict[tuple[str, str], int] = field(default_factory=dict)
    _cells: dict[tuple[str, str], int] = field(default_factory=dict)
    _constants: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.variables = {each.name: each for each in self.module.variables}
        self.functions = {each.name: each for each in self.module.functions}
        of_parameters = [_origins_of(i, each) for i, each in enumerate(self.kernel.parameters)]
        self.known = [origin for each in of_parameters for origin in each]
        fields = [place for place, each in enumerate(self.known) if self._is_field(each)]
        for variable in self.module.variables:
            if variable.space in (StateSpace.GLOBAL, StateSpace.CONST):
                self._symbol_origins[variable.name] = len(self.known)
                self.known.append(Origin(variable.name, None))
        self.origins = Origins(len(self.known), fields)
        self.cell_slots = [self.new_slot(), self.new_slot(), self.new_slot()]
        for place, origin in enumerate(self.known):
            if origin.parameter is None:
                if found := self._addresses_in(self.variables[origin.name]):
                    self.initial[place] = found
            else:
                self._fields.setdefault(origin.name, []).append(place)
        for parameter in self.kernel.parameters:
            cell = self.cell(self.kernel, parameter.name)
            self.slots[self.cell_slots[cell]] = self._given(parameter)
        self.reach(self.kernel)

    @property
    def prints_strings(self) -> bool:
        """Whether a text in the module may be a format with a `%s` in it."""
        texts = (each.initial for each in self.module.variables if each.type.size == 1)
        return any(_STRING_FORMAT.search(_text_of(each)) for each in texts)

    def _is_field(self, origin: Origin) -> bool:
        return origin.parameter is not None and self.kernel.parameters[origin.parameter].is_array

    def _given(self, parameter: Variable) -> int:
        """The origins that any part of a parameter may hold."""
        found = 0
        for place in self._fields.get(parameter.name, ()):
            found |= self.origins.direct_bit(place)
        if parameter.size < POINTER_SIZE:
            return self.origins.as_piece(found)
        if parameter.is_array and (parameter.align < POINTER_SIZE or parameter.size > _MOST_BYTES):
            # A word of the parameter may lie across two fields.
            return self.origins.as_joined(self.origins.as_piece(found))
        return found

    def part(self, function: Function, name: str, start: int, size: int) -> int | None:
        """The origins in `size` bytes from byte `start` of a struct among the kernel's parameters.

        None if `name` is not such a struct. Only a word that is exactly one field is an address as
        the field gives it. A word across two fields counts like bytes loaded from memory.
        """
        places = self._fields.get(name) if function is self.kernel else None
        if not places or not self._is_field(self.known[places[0]]):
            return None
        origins = self.origins
        end = start + size
        inside = [each for each in places if self._overlaps(self.known[each], start, end)]
        found = 0
        for place in inside or places:
            found |= origins.direct_bit(place)
        if size == POINTER_SIZE and len(inside) == 1 and self.known[inside[0]].offset == start:
            return found
        pieces = origins.as_piece(found)
        return origins.as_joined(pieces) if size >= POINTER_SIZE else pieces

    def _overlaps(self, origin: Origin, start: int, end: int) -> bool:
        return origin.offset < end and start < origin.offset + POINTER_SIZE

    def _addresses_in(self, variable: Variable) -> int:
        found = 0
        for each in variable.initial:
            if isinstance(each, SymbolAddress) and each.symbol in self.variables:
                found |= self.variable_address(self.variables[each.symbol])
        return found

    def reach(self, function: Function) -> None:
        """Note that `function` is called."""
        if function.name not in self.reached:
            self.reached.append(function.name)

    def formal(self, function: Function, name: str) -> int:
        """The slot of a formal parameter, which may be a register."""
        if name in function.registers:
            return self.register(function, name)
        return self.cell_slots[self.cell(function, name)]

    def new_slot(self, contents: int = 0) -> int:
        self.slots.append(contents)
        return len(self.slots) - 1

    def register(self, function: Function, name: str) -> int:
        """The slot of a register."""
        key = (function.name, name)
        slot = self._registers.get(key)
        if slot is None:
            slot = self._registers[key] = self.new_slot()
        return slot

    def constant(self, contents: int) -> int:
        """The slot of a set that never changes."""
        slot = self._constants.get(contents)
        if slot is None:
            slot = self._constants[contents] = self.new_slot(contents)
        return slot

    def cell(self, function: Function, name: str) -> int:
        """The cell of a parameter, or of a variable of space .param, of `function`."""
        key = (function.name, name)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = len(self.cell_slots)
            self.cell_slots.append(self.new_slot())
        return cell

    def variable_address(self, variable: Variable) -> int:
        """The set for the address of a variable of the module."""
        match variable.space:
            case StateSpace.SHARED:
                return self.origins.cell_bit(SHARED)
            case StateSpace.LOCAL:
                return self.origins.cell_bit(LOCAL)
            case _:
                return self.origins.direct_bit(self._symbol_origins[variable.name])


def _text_of(initial: tuple[object, ...]) -> bytes:
    return bytes(each.value & 0xFF for each in initial if isinstance(each, Integer))


def _origins_of(index: int, parameter: Variable) -> list[Origin]:
    """The origins of a parameter: one for each word of a struct, otherwise a single one."""
    size = parameter.size
    if not parameter.is_array or size > _MOST_BYTES:
        return [Origin(parameter.name, index, 0, is_pointer_like(parameter))]
    return [
        Origin(parameter.name, index, start, size - start >= POINTER_SIZE)
        for start in range(0, max(size, 1), POINTER_SIZE)
    ]


def is_pointer_like(parameter: Variable) -> bool:
    """Whether a pointer fits in the parameter: it is neither a small number nor a float."""
    return parameter.size >= POINTER_SIZE and not parameter.type.is_float
