"""Cellar. Writes LLVM IR for one thread: registers live in memory, each instruction stands alone.

A register is eight bytes of an activation record. An instruction reads it at its own width, which
is the low bits on a little-endian machine. A write has the register's width, so that a narrow
result fills the register as the PTX ISA says ("Operand Size Exceeding Instruction-Type Size").
No LLVM value lives across two PTX instructions, so a thread can stop anywhere.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NoReturn

from cudasync.errors import PtxError
from cudasync.ptx.ir import (
    Float,
    Instruction,
    Integer,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emission.activation_record import Activation
from cudasync.softgpu.oracle.emission.special_registers import read_special
from cudasync.softgpu.oracle.emission.state_records import ThreadState

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function
    from cudasync.softgpu.oracle.emission.memory_layout import Places
    from cudasync.softgpu.oracle.emission.suspension_points import Stop

T = ScalarType


def llvm_type(type_: ScalarType) -> str:
    """The LLVM type. Halves are integers here: arithmetic on them goes through wider types."""
    if type_ is T.F32:
        return "float"
    if type_ is T.F64:
        return "double"
    return f"i{type_.bits}"


class Emitter:
    """The text of one thread function, and methods that read and write its operands."""

    def __init__(
        self, function: Function, places: Places, file: str, *, memcheck: bool, record: bool
    ) -> None:
        self.places = places
        self.file = file
        self.memcheck = memcheck
        self.record = record
        # The suspension points; the number of a stop is its place here, counted from 1.
        self.stops: list[Stop] = []
        # The instruction being lowered, and its index in the function.
        self.instruction: Instruction | None = None
        self.index = 0
        # Helper functions that the text calls, by name: declarations or definitions.
        self.helpers: dict[str, str] = {}
        self.lines: list[str] = []
        # Functions called so far, in the order of their first call; the kernel is the first.
        self.called: list[Function] = [function]
        # Labels after calls, by the number that the callee's record keeps.
        self.returns: list[str] = []
        self._count = 0
        self._activations: dict[str, Activation] = {}
        self.enter(function)

    def enter(self, function: Function) -> None:
        """Begin the body of `function`."""
        self.function = function
        self.activation = self.activation_of(function)
        self.places.enter(function)

    def activation_of(self, function: Function) -> Activation:
        return self._activations.setdefault(function.name, Activation(function))

    def label_of(self, index: int, function: Function | None = None) -> str:
        """The label of an instruction of the current function, or of `function`."""
        number = self.called.index(function or self.function)
        return f"F{number}.I{index}"

    # ---- text

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def value(self, expression: str) -> str:
        """Name the value of an expression."""
        name = "%" + self.fresh()
        self.line(f"{name} = {expression}")
        return name

    def call(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        """Call a function that is only declared: an LLVM intrinsic or a C library function."""
        types = ", ".join(type_ for type_, _ in arguments)
        self.helpers.setdefault(name, f"declare {result} @{name}({types})")
        return self.helper(result, name, *arguments)

    def helper(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        values = ", ".join(f"{type_} {value}" for type_, value in arguments)
        return self.value(f"call {result} @{name}({values})")

    def select(self, condition: str, type_: str, yes: str, no: str) -> str:
        return self.value(f"select i1 {condition}, {type_} {yes}, {type_} {no}")

    def refuse(self, why: str) -> NoReturn:
        """Refuse the current instruction: it is not implemented."""
        assert self.instruction is not None
        raise PtxError(
            why,
            file=self.file,
            line=self.instruction.span.line,
            column=self.instruction.span.column,
            instruction=self.instruction.text,
        )

    # ---- memory of the frame

    def at(self, base: str, offset: int) -> str:
        return self.value(f"getelementptr i8, ptr {base}, i64 {offset}")

    def field(self, base: str, offset: int, type_: str) -> str:
        return self.value(f"load {type_}, ptr {self.at(base, offset)}")

    def block(self) -> str:
        """The record of the thread's block."""
        return self.field("%frame", ThreadState.block.offset, "ptr")

    def base(self) -> str:
        """The activation record of the running function."""
        return self.field("%frame", ThreadState.activation.offset, "ptr")

    # ---- operands

    def read(self, operand: Operand, type_: ScalarType) -> str:
        """The operand as a value of `type_`: integers as iN, predicates as i1."""
        match operand:
            case Register():
                return self._load(operand, type_)
            case Negated():
                return self.value(f"xor i1 {self._load(operand.register, T.PRED)}, true")
            case Integer():
                return self.constant(operand.value, type_)
            case Float():
                return self._float(operand, type_)
            case Special():
                return self.resize(read_special(self, operand), operand.type.bits, type_)
            case Symbol():
                return self.resize(self.places.symbol(self, operand), 64, type_)
            case Vector():
                return self._packed(operand, type_)
        self.refuse(f"operand {operand} cannot be read here")

    def constant(self, value: int, type_: ScalarType) -> str:
        bits = value % (1 << type_.bits)
        if type_ is T.PRED:
            return "true" if value else "false"
        return self.from_bits(str(bits), type_)

    def from_bits(self, bits: str, type_: ScalarType) -> str:
        """Integer bits as a value of `type_`."""
        if type_ in (T.F32, T.F64):
            return self.value(f"bitcast i{type_.bits} {bits} to {llvm_type(type_)}")
        return bits

    def to_bits(self, value: str, type_: ScalarType) -> str:
        if type_ in (T.F32, T.F64):
            return self.value(f"bitcast {llvm_type(type_)} {value} to i{type_.bits}")
        return value

    def resize(self, value: str, bits: int, type_: ScalarType, *, signed: bool = False) -> str:
        """An integer of `bits` bits, truncated or extended to `type_`."""
        if bits > type_.bits:
            value = self.value(f"trunc i{bits} {value} to i{type_.bits}")
        elif bits < type_.bits:
            extend = "sext" if signed else "zext"
            value = self.value(f"{extend} i{bits} {value} to i{type_.bits}")
        return self.from_bits(value, type_)

    def write(self, operand: Operand, value: str, type_: ScalarType) -> None:
        """Store a result of `type_`; a result narrower than its register is sign-extended."""
        match operand:
            case Sink():
                return
            case Vector():
                self._unpack(operand, value, type_)
            case Register():
                own = operand.type
                bits = self.to_bits(value, type_)
                if T.PRED in (own, type_) and own is not type_:
                    self.refuse(
                        "a predicate cannot be used as a number, nor a number as a predicate"
                    )
                bits = self._widened(bits, type_, own)
                width = 8 if own is T.PRED else own.bits
                self.line(f"store i{width} {bits}, ptr {self._slot(operand)}")
            case _:
                self.refuse(f"{operand} cannot be written")

    def _widened(self, bits: str, type_: ScalarType, own: ScalarType) -> str:
        if own is T.PRED:
            return self.value(f"zext i1 {bits} to i8")
        if own.bits > type_.bits:
            extend = "sext" if type_.is_signed else "zext"
            return self.value(f"{extend} i{type_.bits} {bits} to i{own.bits}")
        if own.bits < type_.bits:
            return self.value(f"trunc i{type_.bits} {bits} to i{own.bits}")
        return bits

    def _slot(self, register: Register) -> str:
        return self.at(self.base(), self.activation.registers[register.name])

    def _load(self, register: Register, type_: ScalarType) -> str:
        if type_ is T.PRED:
            loaded = self.value(f"load i8, ptr {self._slot(register)}")
            return self.value(f"trunc i8 {loaded} to i1")
        if type_.bits > register.type.bits:
            own = register.type
            narrow = self.value(f"load i{own.bits}, ptr {self._slot(register)}")
            return self.resize(narrow, own.bits, type_, signed=own.is_signed)
        return self.value(f"load {llvm_type(type_)}, ptr {self._slot(register)}")

    def _float(self, constant: Float, type_: ScalarType) -> str:
        bits = constant.bits
        # A decimal constant is a double, whatever type the instruction has.
        if constant.type is T.F64 and type_ is T.F32:
            number = struct.unpack("<d", struct.pack("<Q", bits))[0]
            (bits,) = struct.unpack("<I", struct.pack("<f", number))
        elif constant.type.bits != type_.bits:
            self.refuse(f"a constant of type {constant.type!r} is not a {type_!r}")
        return self.from_bits(str(bits), type_)

    def _packed(self, vector: Vector, type_: ScalarType) -> str:
        each = type_.bits // len(vector.elements)
        part = T(f"b{each}")
        result = "0"
        for index, element in enumerate(vector.elements):
            wide = self.value(f"zext i{each} {self.read(element, part)} to i{type_.bits}")
            moved = self.value(f"shl i{type_.bits} {wide}, {index * each}")
            result = self.value(f"or i{type_.bits} {result}, {moved}")
        return self.from_bits(result, type_)

    def _unpack(self, vector: Vector, value: str, type_: ScalarType) -> None:
        each = type_.bits // len(vector.elements)
        bits = self.to_bits(value, type_)
        for index, element in enumerate(vector.elements):
            moved = self.value(f"lshr i{type_.bits} {bits}, {index * each}")
            part = self.value(f"trunc i{type_.bits} {moved} to i{each}")
            self.write(element, part, T(f"b{each}"))
