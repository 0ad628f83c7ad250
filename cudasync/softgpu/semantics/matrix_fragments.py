"""Cellar. Matrix fragments: which lane holds which element of a matrix, in which register.

A fragment is one lane's part of a matrix. Elements are counted as if the registers were stored one
after the other, each as 32 lanes: element `(register * 32 + lane) * parts + part`, where `parts`
elements share a register, the first in its low bits.

For mma, the PTX ISA defines the fragments ("Matrix Fragments for mma.m16n8k16" and so on). With
`group` = lane / 4 and `place` = lane % 4, nearly all of them follow one rule:

    A   row = group + 8 * (register odd, if there are 16 rows)
        column = 4 * parts * (register / 2, or register if there are 8 rows) + parts * place + part
    B   row = 4 * parts * register + parts * place + part,  column = group
    C   row = group + 8 * (element / 2),  column = 2 * place + element % 2

The exception is m8n8k4 in f16: four products, each by one quad pair of lanes.

For wmma, the ISA leaves the layout open. Here matrices lie across the lanes as in memory, A and C
by rows and B by columns, so that storing the registers gives the matrix. A fragment with more room
than elements repeats them. C in f16 holds the same elements in the same order as C in f32. So a
program that converts one to the other, element by element, gets the result of most GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from cudasync.ptx.ir import Register
from cudasync.softgpu.semantics.matrix_forms import ELEMENT_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.ptx.ir import Operand
    from cudasync.softgpu.semantics.matrix_forms import Form, Part

LANES = 32
# Product, row and column. Steps of one-bit products count as elements.
Position: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Fragment:
    """`positions` has an entry for each element place in the registers."""

    type: str
    registers: int
    parts: int
    positions: tuple[Position, ...]

    @property
    def word_bits(self) -> int:
        """The width of its registers."""
        return 64 if self.type == "f64" else 32

    def misfit(self, operands: Sequence[Operand]) -> str | None:
        """The reason why these operands cannot be its registers; None if they can."""
        if len(operands) != self.registers:
            return f"a matrix of .{self.type} needs {self.registers} registers, not {len(operands)}"
        for each in operands:
            if isinstance(each, Register) and each.type.bits != self.word_bits:
                return f"{each.name} is of type {each.type!r}, which does not fit .{self.type}"
        return None

    def where(self) -> dict[Position, int]:
        """The first element place that holds each position."""
        found: dict[Position, int] = {}
        for element, position in enumerate(self.positions):
            found.setdefault(position, element)
        return found


def fragment(form: Form, operand: str) -> Fragment:
    """The fragment of `operand`, one of a, b, c, d."""
    type_ = form.types[operand]
    rows, columns = _size(form, operand)
    if form.is_opaque:
        return _opaque(type_, operand, rows, columns)
    if form.batches > 1:
        return _of_quad_pairs(type_, operand, form.layouts.get(operand, ""))
    return _of_rule(type_, operand, rows, columns)


def fragment_of_part(part: Part) -> Fragment:
    """The fragment that a wmma.load or wmma.store moves."""
    return _opaque(part.type, part.operand, part.rows, part.columns)


def _size(form: Form, operand: str) -> tuple[int, int]:
    return {"a": (form.m, form.k), "b": (form.k, form.n)}.get(operand, (form.m, form.n))


def _parts(type_: str) -> int:
    return max(1, 32 // ELEMENT_BITS[type_])


def _build(type_: str, registers: int, position: Callable[[int, int, int], Position]) -> Fragment:
    parts = _parts(type_)
    positions = tuple(
        position(register, lane, part)
        for register in range(registers)
        for lane in range(LANES)
        for part in range(parts)
    )
    return Fragment(type_, registers, parts, positions)


@cache
def _of_rule(type_: str, operand: str, rows: int, columns: int) -> Fragment:
    parts = _parts(type_)
    registers = rows * columns // (LANES * parts)
    halves = rows // 8

    def a(register: int, lane: int, part: int) -> Position:
        row = lane // 4 + 8 * (register % halves)
        return 0, row, parts * (4 * (register // halves) + lane % 4) + part

    def b(register: int, lane: int, part: int) -> Position:
        return 0, parts * (4 * register + lane % 4) + part, lane // 4

    def c(register: int, lane: int, part: int) -> Position:
        element = register * parts + part
        return 0, lane // 4 + 8 * (element // 2), 2 * (lane % 4) + element % 2

    return _build(type_, registers, {"a": a, "b": b}.get(operand, c))


@cache
def _of_quad_pairs(type_: str, operand: str, layout: str) -> Fragment:
    """The rule for m8n8k4 in f16: lanes 0-3 and 16-19 compute one product, 4-7 and 20-23 ..."""
    parts = _parts(type_)

    def position(register: int, lane: int, part: int) -> Position:
        product, place, upper = lane % 16 // 4, lane % 4, 4 * (lane // 16)
        element = register * parts + part
        match operand, layout, type_:
            case ("a", "row", _):
                return product, place + upper, element
            case ("a", _, _):
                return product, element + upper, place
            case ("b", "row", _):
                return product, place, element + upper
            case ("b", _, _):
                return product, element, place + upper
            case (_, _, "f16"):
                return product, place + upper, element
        return product, (lane & 1) + (element & 2) + upper, (element & 5) + (lane & 2)

    return _build(type_, (4 if operand in "ab" else 8) // parts, position)


@cache
def _opaque(type_: str, operand: str, rows: int, columns: int) -> Fragment:
    """The rule for wmma."""
    parts = _parts(type_)
    count = rows * columns
    # A and B in f16 always take eight registers.
    registers = 8 if operand in "ab" and type_ == "f16" else max(1, count // (LANES * parts))

    def position(register: int, lane: int, part: int) -> Position:
        if operand in "cd":
            element = (register * parts + part) * LANES + lane
        else:
            element = (register * LANES + lane) * parts + part
        element %= count
        if operand == "b":
            return 0, element % rows, element // rows
        return 0, element // columns, element % columns

    return _build(type_, registers, position)
