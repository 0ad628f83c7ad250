"""Floor 0. What each instruction contributes to the flow of origins.

The rule for an opcode that is not named here is safe: its results may be all that its operands
are, and every address among its operands is used in a way that can not be followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.access_flow import LOCAL, SHARED, Flow, MemoryAccess, Move, Step
from cudasync.ptx.ir import Address, Integer, Label, Operand, Register, Symbol, Vector
from cudasync.ptx.liveness import defs
from cudasync.ptx.opcodes import has_result
from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.ptx.webs import Webs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Function, Instruction

# Arithmetic after which a pointer is no pointer any more. Not redux: of halves that are the same in
# every lane it gives the half again.
_SPOILS = frozenset(
    {
        "bfind", "bmsk", "brev", "clz", "cnot", "div", "dp2a", "dp4a", "fns", "match", "mul",
        "mul24", "popc", "rem", "sad", "vote",
    }
)  # fmt: skip
_MULTIPLY_ADDS = frozenset({"mad", "mad24", "madc", "fma"})
# What moves values as they are, even when their type is a float's.
_CARRIES = frozenset({"mov", "selp", "slct", "shfl", "prmt"})
_LOADS = frozenset({"ld", "ldu", "ldmatrix"})
_STORES = frozenset({"st", "stmatrix"})
_ATOMICS = frozenset({"atom", "red"})
# Addresses that are named, but nothing is moved.
_HINTS = frozenset({"prefetch", "prefetchu", "applypriority", "isspacep", "createpolicy"})
# What reaches memory through descriptors and tensor maps: nothing about it is followed.
_OPAQUE = frozenset({"clusterlaunchcontrol", "multimem", "tcgen05", "tensormap", "wgmma"})
_NO_DATA = frozenset({"setp", "bar", "barrier", "bra", "brx", "ret", "exit", "trap", "membar"})

# Functions of the device runtime that are not in any module: they read what they are given.
_READERS = frozenset({"vprintf", "__assertfail"})
_ALLOCATORS = frozenset({"malloc", "free"})

_HALF_POINTER_BITS = 32
# Nobody scales an index this far: such a shift puts a pointer together, or frees it of a tag.
_LEAST_HIGH_SHIFT = 16


class StepWriter:
    """Writes the steps of `function` into `flow`."""

    def __init__(self, flow: Flow, function: Function) -> None:
        self._flow = flow
        self._function = function
        self._webs = Webs(function)
        # The instruction being written.
        self._index = 0
        self._in_function = {
            each.name: each
            for each in (*function.parameters, *function.results, *function.variables)
        }

    def write(self) -> None:
        """All of the function's instructions."""
        for index, instruction in enumerate(self._function.body):
            self._index = index
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
            self._step(Move.SAME, self._results(instruction), [self._flow.constant(bit)])
        else:
            self._arithmetic(instruction)

    def _arithmetic(self, instruction: Instruction) -> None:
        results = self._results(instruction)
        operands = instruction.operands
        if has_result(instruction.opcode, instruction.modifiers):
            operands = operands[1:]
        sources = self._slots(operands)
        if instruction.opcode in _OPAQUE:
            self._flow.lost += self._slots(instruction.operands)
        elif instruction.space not in (StateSpace.LOCAL, StateSpace.SHARED):
            self._flow.lost += self._slots(_addresses(instruction.operands))
        if instruction.opcode == "cvta" and "to" not in instruction.modifiers:
            # However a window's address was worked out, this is one of that window.
            self._step(Move.SAME, results, self._window_address(instruction))
        if instruction.opcode in _MULTIPLY_ADDS and not _is_float(instruction):
            self._step(Move.INDEX, results, sources[:-1])
            self._step(Move.SAME, results, self._slots(operands[2:]))
        else:
            self._step(_move(instruction), results, sources)

    def _window_address(self, instruction: Instruction) -> list[int]:
        cell = {StateSpace.SHARED: SHARED, StateSpace.LOCAL: LOCAL}.get(instruction.space)
        if cell is None:
            return []
        return [self._flow.constant(self._flow.origins.cell_bit(cell))]

    def _load(self, instruction: Instruction) -> None:
        address = instruction.operands[1]
        results = self._results(instruction)
        cell = self._cell(instruction, address)
        if cell is not None:
            self._step(Move.SAME, results, [self._flow.cell_slots[cell]])
            return
        source = self._address(address)
        self._flow.accesses.append(
            MemoryAccess(source, True, False, is_generic=_is_generic(instruction))
        )
        self._flow.steps.append(
            Step(_load_move(instruction), results, (source,), _is_narrow(instruction))
        )

    def _store(
        self, instruction: Instruction, address: Operand, values: list[int], *, reads: bool = False
    ) -> None:
        cell = self._cell(instruction, address)
        if cell is not None:
            self._step(Move.SAME, (self._flow.cell_slots[cell],), values)
            return
        self._flow.accesses.append(
            MemoryAccess(
                self._address(address), reads, True, tuple(values), _is_generic(instruction)
            )
        )

    def _atomic(self, instruction: Instruction) -> None:
        is_reduction = instruction.opcode == "red"
        address, *values = instruction.operands[0 if is_reduction else 1 :]
        self._store(instruction, address, self._slots(values), reads=True)
        results = self._results(instruction)
        cell = self._cell(instruction, address)
        if cell is not None:
            self._step(Move.SAME, results, [self._flow.cell_slots[cell]])
        else:
            self._step(_load_move(instruction), results, [self._address(address)])

    def _copy(self, instruction: Instruction) -> None:
        """cp.async moves global memory to shared memory; its bulk forms are not followed."""
        addresses = [each for each in instruction.operands if isinstance(each, Address)]
        if "bulk" in instruction.modifiers or "reduce" in instruction.modifiers:
            self._flow.lost += self._slots(instruction.operands)
        elif len(addresses) == 2:
            source = self._address(addresses[1])
            self._flow.accesses.append(MemoryAccess(source, reads=True, writes=False))
            self._step(Move.LOAD_GLOBAL, (self._flow.cell_slots[SHARED],), [source])
        elif instruction.space is not StateSpace.SHARED:
            # An mbarrier, which is in shared memory if the program is right.
            self._flow.lost += self._slots(addresses)

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
            self._step(Move.SAME, (_formal(flow, function, formal.name),), [self._held(actual)])
        for formal, actual in zip(function.results, results.elements, strict=False):
            formal_slot = _formal(flow, function, formal.name)
            self._step(Move.SAME, (self._held(actual, self._webs.defined),), [formal_slot])

    def _call_out(self, name: str, results: Vector, arguments: Vector) -> None:
        """A call of code that is not here."""
        flow = self._flow
        held = [self._held(each) for each in arguments.elements]
        returned = [self._held(each, self._webs.defined) for each in results.elements]
        if name in _ALLOCATORS:
            self._step(Move.SAME, returned, [flow.constant(flow.origins.heap)])
        elif name in _READERS:
            # Arguments of printf lie in local memory, and %s reads through them.
            flow.printed += [*held, flow.cell_slots[LOCAL]]
        else:
            flow.calls_out = True
            flow.lost += [*held, flow.cell_slots[LOCAL], flow.cell_slots[SHARED]]
            self._step(Move.SAME, returned, [flow.constant(flow.origins.any)])

    def _held(self, operand: Operand, webs: dict[tuple[int, str], int] | None = None) -> int:
        """The slot of an argument: what a .param variable holds, or the value itself."""
        if isinstance(operand, Register):
            return self._register(operand, self._webs.used if webs is None else webs)
        if isinstance(operand, Symbol) and operand.name in self._in_function:
            return self._flow.cell_slots[self._flow.cell(self._function, operand.name)]
        return (self._slots([operand]) or [self._flow.constant(0)])[0]

    def _cell(self, instruction: Instruction, address: Operand) -> int | None:
        """The cell that is meant, when the instruction or the address names it."""
        match instruction.space:
            case StateSpace.LOCAL:
                return LOCAL
            case StateSpace.SHARED:
                return SHARED
        if isinstance(address, Address) and isinstance(address.base, Symbol):
            variable = self._in_function.get(address.base.name)
            if variable is not None and variable.space is StateSpace.PARAM:
                return self._flow.cell(self._function, variable.name)
        return None

    def _address(self, operand: Operand) -> int:
        """The slot of an address. A number as an address may be anything."""
        slots = self._slots([operand]) if isinstance(operand, Address) else []
        return slots[0] if slots else self._flow.constant(self._flow.origins.any)

    def _results(self, instruction: Instruction) -> tuple[int, ...]:
        return tuple(
            self._register(register, self._webs.defined)
            for register in defs(instruction)
            if register.type is not ScalarType.PRED
        )

    def _slots(self, operands: Iterable[Operand]) -> list[int]:
        """The slots of what the operands may derive from."""
        found: list[int] = []
        for operand in operands:
            match operand:
                case Register(type=type_):
                    if type_ is not ScalarType.PRED:
                        found.append(self._register(operand, self._webs.used))
                case Symbol(name=name):
                    found.append(self._flow.constant(self._symbol(name)))
                case Address(base=Register() | Symbol() as base):
                    found += self._slots([base])
                case Vector(elements=elements):
                    found += self._slots(elements)
        return found

    def _register(self, register: Register, webs: dict[tuple[int, str], int]) -> int:
        """The slot of a register as it is used, or defined, by this instruction."""
        web = webs.get((self._index, register.name))
        name = register.name if web is None else f"{register.name}@{web}"
        return self._flow.register(self._function, name)

    def _symbol(self, name: str) -> int:
        """The set that the address of a symbol is. Addresses of functions lead nowhere."""
        flow = self._flow
        variable = self._in_function.get(name)
        if variable is None:
            outer = flow.variables.get(name)
            return flow.origins.heap if outer is None else flow.variable_address(outer)
        match variable.space:
            case StateSpace.LOCAL:
                return flow.origins.cell_bit(LOCAL)
            case StateSpace.SHARED:
                return flow.origins.cell_bit(SHARED)
            case StateSpace.PARAM:
                return flow.origins.cell_bit(flow.cell(self._function, name))
        # A .global of the function itself: nobody else has its address.
        return flow.origins.heap

    def _step(self, move: Move, targets: Iterable[int], sources: Iterable[int]) -> None:
        self._flow.steps.append(Step(move, tuple(targets), tuple(sources)))


def _formal(flow: Flow, function: Function, name: str) -> int:
    """The slot of a formal parameter, which may be a register."""
    if name in function.registers:
        return flow.register(function, name)
    return flow.cell_slots[flow.cell(function, name)]


def _addresses(operands: Iterable[Operand]) -> list[Operand]:
    """The addresses among the operands, also where they stand in a vector."""
    found: list[Operand] = []
    for operand in operands:
        if isinstance(operand, Vector):
            found += _addresses(operand.elements)
        elif isinstance(operand, Address):
            found.append(operand)
    return found


def _is_float(instruction: Instruction) -> bool:
    return any(type_.is_float for type_ in instruction.types)


def _is_narrow(instruction: Instruction) -> bool:
    return bool(instruction.types) and instruction.type.bits < _HALF_POINTER_BITS


def _is_generic(instruction: Instruction) -> bool:
    return instruction.space is StateSpace.GENERIC


def _load_move(instruction: Instruction) -> Move:
    return Move.LOAD if _is_generic(instruction) else Move.LOAD_GLOBAL


def _move(instruction: Instruction) -> Move:
    """What arithmetic leaves of a pointer."""
    opcode = instruction.opcode
    if opcode in _CARRIES:
        return Move.SAME
    if opcode in _SPOILS or _is_float(instruction):
        return Move.INDEX
    if opcode == "cvt" and _widens(instruction):
        return Move.INDEX
    if opcode == "shl":
        by = instruction.operands[2]
        is_far = isinstance(by, Integer) and by.value >= _LEAST_HIGH_SHIFT
        return Move.HIGH_HALF if is_far else Move.INDEX
    return Move.SAME


def _widens(instruction: Instruction) -> bool:
    """A cvt from a type that is too narrow for a pointer to a wider one."""
    if len(instruction.types) < 2:
        return False
    target, source = instruction.types[0], instruction.types[-1]
    return source.bits < target.bits
