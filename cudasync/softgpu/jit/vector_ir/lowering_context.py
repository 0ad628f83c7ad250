"""Cellar, jit. The state in which one instruction is lowered, and the reading of its operands.

Emitters are functions `(lowering, instruction) -> None` in tables by opcode, one module per family.
They read operands, compute through `lowering.builder`, and write results. They do not see guards
or control flow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, TypeAlias

from cudasync.errors import PtxError
from cudasync.ptx import ir
from cudasync.ptx.liveness import uses
from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.softgpu.jit.vector_ir.float_literals import float_literal
from cudasync.softgpu.jit.vector_ir.uniformity import UNIFORM, Kind, Shape, join
from cudasync.softgpu.jit.vector_ir.values import (
    Value,
    bits_of,
    integer,
    is_float,
    llvm_type,
    uniform,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudasync.softgpu.jit.addressing.address_bounds import Reach
    from cudasync.softgpu.jit.addressing.memcheck_combining import Group
    from cudasync.softgpu.jit.convergence.undefined import Undefined
    from cudasync.softgpu.jit.kernel_abi.specialisation import Settings, Variant
    from cudasync.softgpu.jit.transforms.program import Program
    from cudasync.softgpu.jit.vector_ir.builder import Builder

Emitter: TypeAlias = "Callable[[Lowering, ir.Instruction], None]"


class Lowering:
    """A kernel, or one of its device functions, being lowered for one variant."""

    def __init__(
        self,
        program: Program,
        function: ir.Function,
        variant: Variant,
        settings: Settings,
        shapes: Mapping[str, Shape],
        builder: Builder,
        like: Lowering | None = None,
    ) -> None:
        """`like` lowers another part of the same function; its analysis results are reused."""
        self.program = program
        self.function = function
        self.storage = program.storages[function.name]
        self.variant = variant
        self.settings = settings
        self.shapes = shapes
        self.builder = builder
        # The lanes for which the current instruction takes effect: a vector of i1.
        self.mask = "%active"
        # Whether the mask is known to contain all lanes.
        self.is_mask_full = variant.is_whole
        self._quiet = frozenset(variant.quiet)
        # Whether no living lane of the warp is anywhere else.
        self.has_everybody = False
        # Whether other lanes still need the old value of a register, by name.
        self.must_blend: Callable[[str], bool] = lambda _name: False
        # Accesses of the node that are checked together, by position.
        self.groups: Mapping[int, Group] = {}
        # The amount that a loop trip adds to addresses, by position, see `induction_strides`;
        # whether warps work on tiles, between barriers.
        self.strides: Mapping[int, Mapping[str, int]] = {}
        self.has_tiles = False
        # Whether to record arrivals at barriers of the block, and ends of threads, see
        # `convergence_records`.
        self.tells_arrivals = self.tells_ends = False
        # Follows undefined values that lanes have read from inactive lanes, if that is checked.
        self.undefined: Undefined | None = None
        # Whether its stores may be non-temporal.
        self.is_nontemporal = False
        # The index in the body of the current instruction.
        self.position = 0
        # Whether some loop waits for memory, so that the function keeps its patience.
        self.has_patience = False
        # Whether there are loops, so that the function keeps its budget in a register.
        self.has_fuel = False
        # The extent that each instruction checks at once in its cached range, see `memcheck`.
        self.reaches: dict[int, Reach] = {}
        self._wanted: frozenset[str] = (
            frozenset(each.name for i in function.body for each in uses(i))
            if like is None
            else like._wanted
        )

    @property
    def is_kernel(self) -> bool:
        return self.function.is_kernel

    @property
    def is_quiet(self) -> bool:
        """Whether the current access to shared memory cannot race, see `race_free_accesses`."""
        return self.is_kernel and self.position in self._quiet

    def number(self, position: int | None = None) -> int:
        """An instruction's number in the whole program, which identifies it in a report."""
        origin = self.program.origins[self.function.name]
        return origin + (self.position if position is None else position)

    # Refusals.

    def refuse(self, instruction: ir.Instruction, why: str = "") -> NoReturn:
        """Raise a PtxError: this instruction cannot run here."""
        name = ".".join(
            (instruction.opcode, *instruction.modifiers, *(t.value for t in instruction.types))
        )
        raise PtxError(
            why or f"{name} is not implemented by the software GPU",
            file=self.program.module.file,
            line=instruction.span.line,
            column=instruction.span.column,
            instruction=instruction.text,
        )

    def refuse_here(self, why: str) -> NoReturn:
        """Raise a PtxError for the current instruction."""
        self.refuse(self.function.body[self.position], why)

    # Operands.

    def read(self, operand: ir.Operand, type_: ScalarType) -> Value:
        """The value of a source operand, in the LLVM type of `type_`."""
        wanted = llvm_type(type_)
        match operand:
            case ir.Register():
                return self.convert(self.load_register(operand), wanted)
            case ir.Integer(value=value):
                if is_float(wanted):
                    return self.builder.bitcast(integer(f"i{type_.bits}", value), wanted)
                return integer(wanted, value)
            case ir.Float():
                return float_literal(operand, type_)
            case ir.Negated(register=register):
                return self.negate(self.load_register(register))
            case ir.Symbol():
                return self.convert(self._symbol_value(operand), wanted)
            case ir.Special():
                return self.convert(self.special(operand), wanted)
            case ir.Sink():
                return integer(wanted, 0)
        raise AssertionError(operand)

    def load_as(self, operand: ir.Operand, wanted: str) -> Value:
        """An integer operand as an integer LLVM type, for operands wider than the instruction."""
        return self.read(operand, ScalarType[wanted.replace("i", "B")])

    def convert(self, value: Value, wanted: str) -> Value:
        """Reinterpret: the low bits of a wider register, or the same bits as another type."""
        if value.type == wanted:
            return value
        if bits_of(value.type) == bits_of(wanted):
            return self.builder.bitcast(value, wanted)
        as_bits = self.builder.bitcast(value, f"i{bits_of(value.type)}")
        bits = f"i{bits_of(wanted)}"
        if bits_of(value.type) > bits_of(wanted):
            return self.builder.bitcast(self.builder.truncate(as_bits, bits), wanted)
        return self.builder.bitcast(self.builder.extend(as_bits, bits, is_signed=False), wanted)

    def negate(self, predicate: Value) -> Value:
        return self.builder.binary("xor", predicate, integer("i1", 1))

    def load_register(self, register: ir.Register) -> Value:
        """The current value of a register."""
        builder = self.builder
        known: Value | None = builder.known.find(("register", register.name))
        if known is not None:
            return known
        shape = self.shapes.get(register.name, UNIFORM)
        type_ = llvm_type(register.type)
        held = builder.vector_type(type_) if shape.is_varying else type_
        text = builder.name(f"load {held}, ptr {slot(register.name)}")
        index = ""
        lift = ("", "")
        if shape.scale:
            narrow = "i32" if shape.stride else builder.vector_type("i32")
            index = builder.name(f"load {narrow}, ptr {index_slot(register.name)}")
        if shape.kind is Kind.LIFTED:
            amount, lanes = lift_slots(register.name)
            lift = (
                builder.name(f"load {type_}, ptr {amount}"),
                builder.name(f"load i{builder.lanes}, ptr {lanes}"),
            )
        value = Value(type_, text, shape, index=index, lift=lift)
        builder.known.note(("register", register.name), value)
        return value

    def write(self, target: ir.Operand, value: Value) -> None:
        """Set a register in the lanes of the mask; other lanes keep their value."""
        if isinstance(target, ir.Sink):
            return
        assert isinstance(target, ir.Register), target
        self.store_register(target, self.convert(value, llvm_type(target.type)))

    def store_register(self, register: ir.Register, value: Value) -> None:
        builder = self.builder
        name = register.name
        shape = self.shapes.get(name, UNIFORM)
        index = value.index
        if not shape.is_varying:
            assert join(value.shape, shape) == shape, (self.function.name, name, shape, value)
            builder.emit(f"store {value.type} {value.text}, ptr {slot(name)}")
            if shape.kind is Kind.LIFTED:
                amount, lanes = lift_slots(name)
                builder.emit(f"store {value.type} {value.lift[0]}, ptr {amount}")
                builder.emit(f"store i{builder.lanes} {value.lift[1]}, ptr {lanes}")
            if shape.scale:
                narrow = "i32"
                if not shape.stride:
                    narrow = builder.vector_type("i32")
                    index = builder.vector(builder.wide_index(value))
                builder.emit(f"store {narrow} {index}, ptr {index_slot(name)}")
            self._note(name, Value(value.type, value.text, shape, index=index, lift=value.lift))
            return
        vector = builder.vector_type(value.type)
        text = builder.vector(value)
        if self.must_blend(name):
            old = builder.name(f"load {vector}, ptr {slot(name)}")
            flags = builder.vector_type("i1")
            text = builder.name(f"select {flags} {self.mask}, {vector} {text}, {vector} {old}")
        builder.emit(f"store {vector} {text}, ptr {slot(name)}")
        self._note(name, Value(value.type, text, shape))

    def _note(self, name: str, value: Value) -> None:
        """Remember the value that a register now holds.

        A literal is not remembered: emitters do more with literals than the analysis of shapes
        foresaw.
        """
        texts = (value.text, value.index or "%", *(each or "%" for each in value.lift))
        is_named = all(each.startswith("%") for each in texts)
        self.builder.known.note(("register", name), value if is_named else None)

    def is_wanted(self, target: ir.Operand) -> bool:
        """Whether any instruction reads this register."""
        return isinstance(target, ir.Register) and target.name in self._wanted

    # Addresses of names.

    def _symbol_value(self, symbol: ir.Symbol) -> Value:
        """The result of `mov`: like `symbol_address`, but in local memory the thread's offset."""
        address = self.symbol_address(symbol)
        storage = self.storage
        if self.is_kernel or not (symbol.name in storage.local or symbol.name in storage.arguments):
            return address
        return self.builder.add(self.frame_offset(), address)

    def frame_offset(self) -> Value:
        """The start of a device function's own local memory in that of its thread."""
        builder = self.builder
        return uniform("i64", builder.name(f"sub i64 {self.program.slab_bytes}, %stack.left"))

    def symbol_address(self, symbol: ir.Symbol) -> Value:
        """A host address, or an offset: in shared memory, or the function's own local memory."""
        storage = self.storage
        if symbol.name in storage.shared:
            return integer("i64", storage.shared[symbol.name] + symbol.offset)
        if symbol.name in storage.local:
            return integer("i64", storage.local[symbol.name] + symbol.offset)
        if symbol.name in storage.arguments:
            argument = uniform("i64", f"%argument.{storage.arguments[symbol.name]}")
            return self.builder.add(argument, integer("i64", symbol.offset))
        if symbol.name in storage.parameters:
            return integer("i64", storage.parameters[symbol.name] + symbol.offset)
        index = storage.symbols.get(symbol.name)
        if index is None:
            self.refuse_here(f"{symbol.name} is not a variable that the software GPU can address")
        place = self.builder.name(f"getelementptr i64, ptr %symbols, i64 {index}")
        text = self.builder.name(f"load i64, ptr {place}, !invariant.load !0")
        return self.builder.add(uniform("i64", text), integer("i64", symbol.offset))

    def special(self, operand: ir.Special) -> Value:
        """The value of a special register; see `special_registers`."""
        from_table = SPECIALS.get(operand.name)
        if from_table is None:
            self.refuse_here(f"{operand.name} is not implemented by the software GPU")
        return from_table(self)

    def space_of(self, name: str) -> StateSpace:
        """The state space of a variable by name."""
        if name in self.storage.shared:
            return StateSpace.SHARED
        if name in self.storage.local:
            return StateSpace.LOCAL
        if name in self.storage.parameters or name in self.storage.arguments:
            return StateSpace.PARAM
        return StateSpace.GLOBAL


# Filled by `special_registers`, which needs `Lowering`.
SPECIALS: dict[str, Callable[[Lowering], Value]] = {}


def slot(register: str) -> str:
    """The stack slot of a register: its scalar, base or vector.

    The equals sign keeps the name unique: a program may call its registers `t1`, or `entry`.
    """
    return f'%"={register}"'


def index_slot(register: str) -> str:
    """The stack slot of a WIDE register's index."""
    return f'%"={register}.index"'


def lift_slots(register: str) -> tuple[str, str]:
    """The stack slots of a LIFTED register: the added amount, and its lanes."""
    return f'%"={register}.lift"', f'%"={register}.lanes"'


def fit(lowering: Lowering, target: ir.Operand, value: Value, type_: ScalarType) -> Value:
    """Extend an integer result to the width of its target register."""
    register_type = getattr(target, "type", type_)
    if register_type.bits <= type_.bits:
        return value
    bits = lowering.builder.bitcast(value, f"i{type_.bits}")
    return lowering.builder.extend(bits, f"i{register_type.bits}", is_signed=type_.is_signed)
