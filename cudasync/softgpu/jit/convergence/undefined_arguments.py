"""Cellar, jit. Follows undefined values through .param variables, and so into functions and back.

Each byte of a .param variable has a word with the lanes in which it is undefined. A function gets a
pointer to the words of each parameter and result from its caller, and a pointer to the line of the
shuffle. Programs without a shuffle have none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Address, Register, Symbol, Vector
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cudasync.ptx.ir import Function, Instruction, Operand
    from cudasync.softgpu.jit.transforms.program import Program
    from cudasync.softgpu.jit.vector_ir.builder import Builder

_LINE: Final = '%"=undefined.line"'
_GIVEN_LINE: Final = "%undefined.line"


def are_followed(program: Program) -> bool:
    """Whether functions of the program may receive undefined values."""
    return bool(program.functions) and any(each.opcode == "shfl" for each in program.instructions)


def undefined_parameters(function: Function) -> list[str]:
    """The further parameters of a function that receives undefined values: types and names."""
    count = len(function.parameters) + len(function.results)
    return [f"ptr {_GIVEN_LINE}", *(f"ptr %undefined.{number}" for number in range(count))]


class UndefinedArguments:
    """The words of a function's .param variables, and the place of the shuffle's line."""

    def __init__(self, function: Function, program: Program) -> None:
        self._program = program
        self.is_on = are_followed(program)
        self._given: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self.line = _LINE
        if not self.is_on:
            return
        if not function.is_kernel:
            self.line = _GIVEN_LINE
            both = (*function.parameters, *function.results)
            self._given = {each.name: f"%undefined.{n}" for n, each in enumerate(both)}
            self._sizes = {each.name: each.size for each in both}
        own = (each for each in function.variables if each.space is StateSpace.PARAM)
        self._sizes |= {each.name: each.size for each in own}

    @property
    def received(self) -> set[str]:
        """The variables that a caller may have given undefined values in."""
        return set(self._given)

    def begin(self, builder: Builder) -> None:
        """Allocate the words of the function's own variables."""
        if self.line == _LINE:
            builder.allocations.append(f"  {_LINE} = alloca i64")
            builder.emit(f"store i64 0, ptr {_LINE}")
        for name, size in self._sizes.items():
            if name not in self._given:
                type_ = f"[{max(1, size)} x i32]"
                builder.allocations.append(f"  {self._place(name)} = alloca {type_}")
                builder.emit(f"store {type_} zeroinitializer, ptr {self._place(name)}")

    def is_moved(self, instruction: Instruction) -> bool:
        """Whether this loads or stores a variable that is followed."""
        return bool(self.name_in(instruction))

    def name_in(self, instruction: Instruction) -> str:
        """The variable that is loaded or stored, if it is followed; else ""."""
        if instruction.opcode not in ("ld", "st") or instruction.space is not StateSpace.PARAM:
            return ""
        place = instruction.operands[instruction.opcode == "ld"]
        base = place.base if isinstance(place, Address) else None
        name = base.name if isinstance(base, Symbol) else ""
        return name if name in self._sizes else ""

    def called_with(self, call: Instruction) -> tuple[list[str], list[str]]:
        """The followed variables with the arguments, and with the results, of a call."""
        results, _, arguments = call.operands[:3]
        return self._among(arguments), self._among(results)

    def is_entered(self, call: Instruction) -> bool:
        """Whether the called function is one that is followed."""
        callee = call.operands[1]
        return isinstance(callee, Symbol) and callee.name in self._program.functions

    def arguments(self, operands: Sequence[Operand]) -> list[str]:
        """What a call hands on, beside the operands themselves."""
        if not self.is_on:
            return []
        assert all(isinstance(each, Symbol) and each.name in self._sizes for each in operands)
        places = (self._place(each.name) for each in operands if isinstance(each, Symbol))
        return [f"ptr {self.line}", *(f"ptr {place}" for place in places)]

    def elements(self, instruction: Instruction) -> Iterator[tuple[Operand, list[str]]]:
        """Each register, or constant, that is moved, and pointers to the words of its bytes."""
        name, is_load = self.name_in(instruction), instruction.opcode == "ld"
        place = instruction.operands[is_load]
        value = instruction.operands[not is_load]
        assert isinstance(place, Address)
        assert isinstance(place.base, Symbol)
        size, first = instruction.type.size, place.offset + place.base.offset
        for n, each in enumerate(value.elements if isinstance(value, Vector) else (value,)):
            bytes_ = range(first + n * size, first + (n + 1) * size)
            # An access beyond the variable is refused elsewhere.
            inside = [byte for byte in bytes_ if 0 <= byte < self._sizes[name]]
            yield (
                each,
                [f"getelementptr i32, ptr {self._place(name)}, i64 {byte}" for byte in inside],
            )

    def words(self, name: str) -> list[str]:
        """Pointers to the words of all bytes of a variable."""
        return self._words(name, range(self._sizes[name]))

    def _words(self, name: str, bytes_: Iterable[int]) -> list[str]:
        return [f"getelementptr i32, ptr {self._place(name)}, i64 {byte}" for byte in bytes_]

    def _among(self, operand: Operand) -> list[str]:
        elements = operand.elements if isinstance(operand, Vector) else ()
        names = (each.name for each in elements if isinstance(each, Symbol | Register))
        return [name for name in names if name in self._sizes]

    def _place(self, name: str) -> str:
        return self._given.get(name) or f'%"={name}.undefined"'
