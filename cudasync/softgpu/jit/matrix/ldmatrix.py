"""Cellar, jit. ldmatrix, stmatrix, movmatrix: tiles of eight by eight halves.

Lane n names row n, numbered across all tiles. A tile of 16-bit elements by rows is one register of
all lanes, in memory order. A transposed tile is such a register with its halves reordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.addressing.address_spaces import place
from cudasync.softgpu.jit.matrix.fragment_memory import put_words, word
from cudasync.softgpu.jit.matrix.matrix_rows import first_lanes, load_lines, store_lines
from cudasync.softgpu.jit.memory.load_store import elements
from cudasync.softgpu.jit.vector_ir.values import Value, varying

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

_ROW_BYTES = 16
_ROWS = 8


def _tiles(lowering: Lowering, instruction: ir.Instruction, operand: ir.Operand) -> int:
    """The number of tiles that are moved."""
    modifiers = instruction.modifiers
    count = next((int(each[1:]) for each in modifiers if each in ("x1", "x2", "x4")), 0)
    if "m8n8" not in modifiers or instruction.types != (ScalarType.B16,):
        lowering.refuse(instruction)
    if len(elements(operand)) != count:
        lowering.refuse(
            instruction, f"the operand needs {count} registers, not {len(elements(operand))}"
        )
    return count


def _load(lowering: Lowering, instruction: ir.Instruction) -> None:
    target, source = instruction.operands
    count = _tiles(lowering, instruction, target)
    with first_lanes(lowering, _ROWS * count):
        where = place(lowering, instruction, source)
        memory = load_lines(lowering, instruction, where, _ROW_BYTES, _ROW_BYTES)
    for number, each in enumerate(elements(target)):
        lowering.write(each, _turned(lowering, instruction, word(lowering, memory, number)))


def _store(lowering: Lowering, instruction: ir.Instruction) -> None:
    target, source = instruction.operands
    count = _tiles(lowering, instruction, source)
    words = [
        _turned(lowering, instruction, lowering.read(each, ScalarType.B32))
        for each in elements(source)
    ]
    memory = put_words(lowering, words, "lines")
    with first_lanes(lowering, _ROWS * count):
        where = place(lowering, instruction, target)
        store_lines(lowering, instruction, where, _ROW_BYTES, _ROW_BYTES, memory)


def _move(lowering: Lowering, instruction: ir.Instruction) -> None:
    if "m8n8" not in instruction.modifiers or instruction.types != (ScalarType.B16,):
        lowering.refuse(instruction)
    target, source = instruction.operands
    value = lowering.read(source, ScalarType.B32)
    lowering.write(target, _turned(lowering, instruction, value))


def _turned(lowering: Lowering, instruction: ir.Instruction, tile: Value) -> Value:
    """A tile as it is, or with rows and columns exchanged."""
    if "trans" not in instruction.modifiers:
        return tile
    builder = lowering.builder
    words, halves = builder.vector_type("i32"), f"<{2 * builder.lanes} x i16>"
    # Half k of the registers is row k / 8, column k % 8.
    order = ", ".join(f"i32 {k % _ROWS * _ROWS + k // _ROWS}" for k in range(2 * builder.lanes))
    before = builder.name(f"bitcast {words} {builder.vector(tile)} to {halves}")
    after = builder.name(
        f"shufflevector {halves} {before}, {halves} poison, <{2 * builder.lanes} x i32> <{order}>"
    )
    return varying("i32", builder.name(f"bitcast {halves} {after} to {words}"))


EMITTERS: dict[str, Emitter] = {"ldmatrix": _load, "stmatrix": _store, "movmatrix": _move}
