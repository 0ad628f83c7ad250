"""Floor 0. What each instruction contributes to the flow of origins.

An opcode without a rule here is treated safely: its results may be anything that its operands are,
and every address among its operands is used in a way that cannot be followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.access_analysis.flow_graph import LOCAL, SHARED, MemoryAccess, Move, Step
from cudasync.ptx.access_analysis.operand_slots import OperandSlots
from cudasync.ptx.access_analysis.pointer_arithmetic import (
    HALF_BITS,
    addresses,
    is_generic,
    is_narrow,
    joined_elements,
    leaves_a_piece,
    load_move,
    move_of,
    surviving,
)
from cudasync.ptx.element_types import shown_by
from cudasync.ptx.ir import Address, Label, Operand, Register, Symbol, Vector
from cudasync.ptx.liveness import defs
from cudasync.ptx.opcodes import has_result
from cudasync.ptx.types import ScalarType, StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Function, Instruction

_LOADS = frozenset({"ld", "ldu", "ldmatrix"})
_STORES = frozenset({"st", "stmatrix"})
_ATOMICS = frozenset({"atom", "red"})
# These name addresses, but move nothing.
_HINTS = frozenset({"prefetch", "prefetchu", "applypriority", "isspacep", "createpolicy"})
# These reach memory through descriptors and tensor maps: the analysis follows nothing of it.
_OPAQUE = frozenset({"clusterlaunchcontrol", "multimem", "tcgen05", "tensormap", "wgmma"})
# These reach memory of the device that no address in the kernel names.
_HANDLES = frozenset({"multimem", "suld", "sured", "sust", "tex", "tld4"})
_NO_DATA = frozenset({"setp", "bar", "barrier", "bra", "brx", "ret", "exit", "trap", "membar"})

# Functions of the device runtime, which are in no module: they read their arguments.
_READERS = frozenset({"vprintf", "__assertfail"})
_ALLOCATORS = frozenset({"malloc", "free"})


class StepWriter(OperandSlots):
    """Writes the steps of `function` into `flow`."""

    def write(self) -> None:
        """Write the steps of all instructions of the function."""
        for index, instruction in enumerate(self._function.body):
            self._index = index
            count_defined = int(has_result(instruction.opcode, instruction.modifiers))
            self._flow.values.note(instruction, self._used, self._defined, count_defined)
            self._instruction(instruction)

    def _instruction(self, instruction: Instruction) -> None:
        opcode = instruction.opcode
        if opcode == "call":
            self._call(instruction)
        elif opcode in _NO_DATA or opcode in _HINTS:
            return
        elif opcode in _LOADS or (opcode == "wmma" and "load" in instruction.modifiers):
            self._load(instruction)
        elif opcode in _STORES or (opcode == "wmma" and "store" in instruction.modifiers):
            first, *rest = instruction.operands
            self._store(instruction, first, self._slots(rest))
        elif opcode in _ATOMICS:
            self._atomic(instruction)
        elif opcode == "cp":
            self._copy(instruction)
        elif opcode == "alloca":
            bit = self._flow.origins.cell_bit(LOCAL)
            self._results(Move.SAME, [self._flow.constant(bit)])
        else:
            self._arithmetic(instruction)

    def _arithmetic(self, instruction: Instruction) -> None:
        operands = instruction.operands
        if has_result(instruction.opcode, instruction.modifiers):
            operands = operands[1:]
        if instruction.opcode in _HANDLES:
            self._beyond(f"memory behind a handle of `{instruction.opcode}`")
        if instruction.opcode in _OPAQUE:
            self._lose(self._slots(instruction.operands))
        elif instruction.space not in (StateSpace.LOCAL, StateSpace.SHARED):
            self._lose(self._slots(addresses(instruction.operands)))
        if instruction.opcode == "cvta" and "to" not in instruction.modifiers:
            # However a window's address was computed, the result is an address of that window.
            self._results(Move.SAME, self._window_address(instruction))
        kept = surviving(instruction, operands)
        lost = [each for each in operands if not any(each is other for other in kept)]
        if lost:
            self._results(Move.NUMBER, self._slots(lost))
        truncated = self._far_shifts.truncated(self._index)
        if truncated is not None:
            before, operand = truncated
            self._results(Move.SAME, self._slots_at(before, [operand]), is_piece=True)
            return
        upper, lower = joined_elements(instruction)
        if upper:
            self._results(Move.JOINED, self._slots(upper))
            self._results(Move.SAME, self._slots(lower))
            return
        is_piece = leaves_a_piece(instruction)
        self._results(move_of(instruction), self._slots(kept), is_piece=is_piece)

    def _window_address(self, instruction: Instruction) -> list[int]:
        cell = {StateSpace.SHARED: SHARED, StateSpace.LOCAL: LOCAL}.get(instruction.space)
        if cell is None:
            return []
        return [self._flow.constant(self._flow.origins.cell_bit(cell))]

    def _load(self, instruction: Instruction) -> None:
        address = instruction.operands[1]
        is_piece = is_narrow(instruction)
        if self._load_part(instruction, address):
            return
        cell = self._cell(instruction, address)
        if cell is not None:
            self._results(Move.JOINED, [self._flow.cell_slots[cell]], is_piece=is_piece)
            return
        source = self._address(address)
        results = defs(self._function.body[self._index])
        data = tuple(self._defined(each) for each in results if each.type is not ScalarType.PRED)
        self._access(instruction, source, reads=True, writes=False, data=data)
        self._results(load_move(instruction), [source], is_piece=is_piece)

    def _load_part(self, instruction: Instruction, address: Operand) -> bool:
        """Write a load from a place in a struct parameter of the kernel; False for other loads."""
        if not isinstance(address, Address) or not isinstance(address.base, Symbol):
            return False
        variable = self._in_function.get(address.base.name)
        if variable is None or variable.space is not StateSpace.PARAM or not instruction.types:
            return False
        first, size = instruction.operands[0], instruction.type.size
        elements = first.elements if isinstance(first, Vector) else (first,)
        start = address.base.offset + address.offset
        for element in elements:
            part = self._flow.part(self._function, variable.name, start, size)
            if part is None:
                return False
            if isinstance(element, Register):
                self._define([element], Move.SAME, [self._flow.constant(part)])
            start += size
        return True

    def _store(
        self, instruction: Instruction, address: Operand, values: list[int], *, reads: bool = False
    ) -> None:
        cell = self._cell(instruction, address)
        if cell is not None:
            self._keep(cell, values, is_piece=is_narrow(instruction))
            return
        stored = tuple(values)
        self._access(
            instruction,
            self._address(address),
            reads=reads,
            writes=True,
            stored=stored,
            data=stored,
        )

    def _access(
        self,
        instruction: Instruction,
        address: int,
        *,
        reads: bool,
        writes: bool,
        stored: tuple[int, ...] = (),
        data: tuple[int, ...],
    ) -> None:
        self._flow.accesses.append(
            MemoryAccess(
                address,
                reads,
                writes,
                stored,
                is_generic(instruction),
                is_narrow(instruction),
                self._line,
                shown_by(instruction),
                instruction.type if instruction.types else None,
                data,
            )
        )

    def _atomic(self, instruction: Instruction) -> None:
        is_reduction = instruction.opcode == "red"
        address, *values = instruction.operands[0 if is_reduction else 1 :]
        self._store(instruction, address, self._slots(values), reads=True)
        is_piece = is_narrow(instruction)
        cell = self._cell(instruction, address)
        if cell is not None:
            self._results(Move.JOINED, [self._flow.cell_slots[cell]], is_piece=is_piece)
        else:
            self._results(load_move(instruction), [self._address(address)], is_piece=is_piece)

    def _copy(self, instruction: Instruction) -> None:
        """cp.async moves global memory to shared memory. Its bulk forms are not followed."""
        named = [each for each in instruction.operands if isinstance(each, Address)]
        if "tensor" in instruction.modifiers:
            self._beyond("memory behind a tensor map")
        if "bulk" in instruction.modifiers or "reduce" in instruction.modifiers:
            self._lose(self._slots(instruction.operands))
        elif len(named) == 2:
            source = self._address(named[1])
            self._flow.accesses.append(
                MemoryAccess(source, reads=True, writes=False, line=self._line)
            )
            self._step(Move.LOAD_GLOBAL, (self._flow.cell_slots[SHARED],), [source])
        elif instruction.space is not StateSpace.SHARED:
            # An mbarrier. It is in shared memory if the program is right.
            self._lose(self._slots(named))

    def _call(self, instruction: Instruction) -> None:
        results, callee, arguments, *targets = instruction.operands
        assert isinstance(results, Vector)
        assert isinstance(arguments, Vector)
        names: tuple[str, ...] = (callee.name,) if isinstance(callee, Symbol) else ()
        if not names and targets:
            assert isinstance(targets[0], Label)
            names = self._function.tables.get(targets[0].name, ())
        if not names:
            self._call_out("", results, arguments)
        for name in names:
            function = self._flow.functions.get(name)
            if function is None or function.is_declaration:
                self._call_out(name, results, arguments)
            else:
                self._call_in(function, results, arguments)

    def _call_in(self, function: Function, results: Vector, arguments: Vector) -> None:
        flow = self._flow
        flow.reach(function)
        for formal, actual in zip(function.parameters, arguments.elements, strict=False):
            self._step(Move.SAME, (flow.formal(function, formal.name),), [self._held(actual)])
        for formal, actual in zip(function.results, results.elements, strict=False):
            formal_slot = flow.formal(function, formal.name)
            self._step(Move.SAME, (self._held(actual, self._webs.defined),), [formal_slot])

    def _call_out(self, name: str, results: Vector, arguments: Vector) -> None:
        """A call of code outside the module."""
        flow = self._flow
        held = [self._held(each) for each in arguments.elements]
        returned = [self._held(each, self._webs.defined) for each in results.elements]
        if name in _ALLOCATORS:
            self._step(Move.SAME, returned, [flow.constant(flow.origins.heap)])
        elif name in _READERS:
            # Arguments of printf lie in local memory. A `%s` reads through them.
            flow.printed += [(each, self._line) for each in (*held, flow.cell_slots[LOCAL])]
        else:
            self._beyond(f"called code that is not in this text{f' (`{name}`)' if name else ''}")
            self._lose([*held, flow.cell_slots[LOCAL], flow.cell_slots[SHARED]])
            self._step(Move.SAME, returned, [flow.constant(flow.origins.any)])

    def _results(self, move: Move, sources: Iterable[int], *, is_piece: bool = False) -> None:
        """The instruction's results may be what `move` makes of `sources`."""
        self._define(defs(self._function.body[self._index]), move, sources, is_piece=is_piece)

    def _define(
        self,
        registers: Iterable[Register],
        move: Move,
        sources: Iterable[int],
        *,
        is_piece: bool = False,
    ) -> None:
        """Add a step into registers. A register of 32 bits gets a piece at most."""
        for has_room in (True, False):
            targets = [
                self._register(each, self._webs.defined)
                for each in registers
                if each.type is not ScalarType.PRED and (each.type.bits > HALF_BITS) is has_room
            ]
            if targets:
                self._step(move, targets, sources, is_piece=is_piece or not has_room)

    def _keep(self, cell: int, values: Iterable[int], *, is_piece: bool) -> None:
        self._step(Move.SAME, (self._flow.cell_slots[cell],), values, is_piece=is_piece)

    def _lose(self, slots: Iterable[int]) -> None:
        """The values in these slots are used in a way that cannot be followed."""
        self._flow.lost += [(slot, self._line) for slot in slots]

    def _beyond(self, why: str) -> None:
        self._flow.beyond.append(f"{why}, line {self._line}")

    def _step(
        self,
        move: Move,
        targets: Iterable[int],
        sources: Iterable[int],
        *,
        is_piece: bool = False,
    ) -> None:
        self._flow.steps.append(Step(move, tuple(targets), tuple(sources), is_piece))
