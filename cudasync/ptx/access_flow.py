"""Floor 0. A kernel and all it calls, as flows between slots.

A slot holds a set of origins: one for each register of each function, one for each cell of
memory whose contents are followed, one for each constant set. What instructions do to such sets
is a list of steps, in no order; what they do to memory is a list of accesses. Device functions
are joined to their callers at their parameters, all calls of one function together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique
from typing import TYPE_CHECKING

from cudasync.ptx.access_origins import Origins
from cudasync.ptx.ir import SymbolAddress
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Module, Variable

# Cells that every flow has. GLOBAL collects what is stored to global memory; it has no address
# bit of its own, because every address of global memory leads to it.
LOCAL, SHARED, GLOBAL = 0, 1, 2

POINTER_SIZE = 8


@unique
class Move(Enum):
    """How a step's result comes from its sources."""

    SAME = "all that the sources may be"
    INDEX = "sources multiplied or otherwise spoiled as pointers"
    HIGH_HALF = "sources shifted up by half a word"
    LOAD = "what memory at the sources' addresses holds"
    LOAD_GLOBAL = "the same, where local and shared memory are excluded"


@dataclass(frozen=True, slots=True)
class Step:
    """`targets` may be what `move` makes of `sources`; all are slots."""

    move: Move
    targets: tuple[int, ...]
    sources: tuple[int, ...]
    # Less than half a pointer is loaded: numbers, not pieces of pointers.
    is_narrow: bool = False


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """Global or generic memory at `address` is read, written, or both; `stored` goes there."""

    address: int
    reads: bool
    writes: bool
    stored: tuple[int, ...] = ()
    is_generic: bool = False


@dataclass(slots=True)
class Flow:
    """Slots, steps and accesses of one kernel, as they are collected."""

    module: Module
    kernel: Function
    variables: dict[str, Variable] = field(default_factory=dict)
    # Names of the module's variables, in the order of their origins behind the parameters'.
    symbols: list[str] = field(default_factory=list)
    origins: Origins = field(init=False)
    slots: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    accesses: list[MemoryAccess] = field(default_factory=list)
    # Slots of values that somebody uses in a way that can not be followed.
    lost: list[int] = field(default_factory=list)
    # Slots of values that printf may read through.
    printed: list[int] = field(default_factory=list)
    # Set when code that is not here runs: it may touch every variable of the module.
    calls_out: bool = False
    # Of each symbol's initial value: the addresses in it.
    initial: dict[int, int] = field(default_factory=dict)
    cell_slots: list[int] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)
    # Functions that are reached; those from `done` on have not been looked at.
    reached: list[str] = field(default_factory=list)
    _symbol_origins: dict[str, int] = field(default_factory=dict)
    _registers: dict[tuple[str, str], int] = field(default_factory=dict)
    _cells: dict[tuple[str, str], int] = field(default_factory=dict)
    _constants: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.variables = {each.name: each for each in self.module.variables}
        self.functions = {each.name: each for each in self.module.functions}
        self.symbols = [
            each.name
            for each in self.module.variables
            if each.space in (StateSpace.GLOBAL, StateSpace.CONST)
        ]
        first = len(self.kernel.parameters)
        self._symbol_origins = {name: first + place for place, name in enumerate(self.symbols)}
        self.origins = Origins(len(self.kernel.parameters) + len(self.symbols))
        self.cell_slots = [self.new_slot(), self.new_slot(), self.new_slot()]
        for origin, parameter in enumerate(self.kernel.parameters):
            cell = self.cell(self.kernel, parameter.name)
            self.slots[self.cell_slots[cell]] = self._given(origin, parameter)
        for name in self.symbols:
            if found := self._addresses_in(self.variables[name]):
                self.initial[self._symbol_origins[name]] = found
        self.reach(self.kernel)

    def _given(self, origin: int, parameter: Variable) -> int:
        if is_pointer_like(parameter):
            return self.origins.direct_bit(origin)
        return self.origins.index_bit(origin)

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
        """The set that the address of a variable of the module is."""
        match variable.space:
            case StateSpace.SHARED:
                return self.origins.cell_bit(SHARED)
            case StateSpace.LOCAL:
                return self.origins.cell_bit(LOCAL)
            case _:
                return self.origins.direct_bit(self._symbol_origins[variable.name])


def is_pointer_like(parameter: Variable) -> bool:
    """Whether a pointer fits in: neither a small number nor a float."""
    return parameter.size >= POINTER_SIZE and not parameter.type.is_float
