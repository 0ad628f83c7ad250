"""Cellar. Matrix instructions of one thread: its operands for the warp, and its results.

A thread accesses memory on its own: ldmatrix and stmatrix access the row that the thread names,
wmma.load and wmma.store each of the elements that it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emission.state_records import ThreadState
from cudasync.softgpu.oracle.instructions.control_flow import exchange
from cudasync.softgpu.oracle.instructions.load_store import address, address_at, elements
from cudasync.softgpu.oracle.interpreter.ldmatrix import tile_count
from cudasync.softgpu.semantics.matrix_forms import ELEMENT_BITS, Part, form_of, part_of
from cudasync.softgpu.semantics.matrix_fragments import LANES, Fragment, fragment, fragment_of_part

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType


def _held(e: Emitter, operand: Operand, held: Fragment) -> tuple[Operand, ...]:
    found = elements(operand)
    complaint = held.misfit(found)
    if complaint is not None:
        e.refuse(complaint)
    return found


def _word_type(held: Fragment) -> ScalarType:
    return T.B64 if held.word_bits == 64 else T.B32


def multiply(e: Emitter, i: Instruction) -> None:
    """Lower mma, wmma.mma."""
    form = form_of(i)
    if form is None or len(i.operands) != 4:
        e.refuse(f"this form of {i.opcode} is not implemented")
    target, *sources = i.operands
    values = []
    for operand, source in zip("abc", sources, strict=True):
        held = fragment(form, operand)
        type_ = _word_type(held)
        values += [(e.read(each, type_), type_) for each in _held(e, source, held)]
    held = fragment(form, "d")
    type_ = _word_type(held)
    targets = _held(e, target, held)
    results = exchange(e, i, values, [type_] * len(targets))
    for each, value in zip(targets, results, strict=True):
        e.write(each, value, type_)


# ---- ldmatrix, stmatrix, movmatrix


def _tiles(e: Emitter, i: Instruction, operand: Operand) -> tuple[Operand, ...]:
    _is_known_tile(e, i)
    if not {"x1", "x2", "x4"} & set(i.modifiers):
        e.refuse(f"this form of {i.opcode} is not implemented")
    found = elements(operand)
    if len(found) != tile_count(i):
        e.refuse(f"the operand needs {tile_count(i)} registers, not {len(found)}")
    return found


def _is_known_tile(e: Emitter, i: Instruction) -> None:
    if "m8n8" not in i.modifiers or i.types != (T.B16,):
        e.refuse(f"this form of {i.opcode} is not implemented")


def _lane(e: Emitter) -> str:
    linear = e.field("%frame", ThreadState.linear.offset, "i32")
    return e.value(f"and i32 {linear}, {LANES - 1}")


def load_tiles(e: Emitter, i: Instruction) -> None:
    """Lower ldmatrix: a lane that names a row loads it and hands it out."""
    targets = _tiles(e, i, i.operands[0])
    places = [e.at("%frame", ThreadState.mailbox.offset + 8 * word) for word in range(2)]
    for place in places:
        e.line(f"store i64 0, ptr {place}")
    loads, loaded = e.fresh("row"), e.fresh("loaded")
    names_row = e.value(f"icmp ult i32 {_lane(e)}, {8 * len(targets)}")
    e.line(f"br i1 {names_row}, label %{loads}, label %{loaded}")
    e.label(loads)
    where = address(e, i, i.operands[1], 16, is_write=False)
    for word, place in enumerate(places):
        half = e.value(f"load i64, ptr {e.at(where, 8 * word)}, align 1")
        e.line(f"store i64 {half}, ptr {place}")
    e.line(f"br label %{loaded}")
    e.label(loaded)
    results = exchange(e, i, [], [T.B32] * len(targets))
    for target, value in zip(targets, results, strict=True):
        e.write(target, value, T.B32)


def store_tiles(e: Emitter, i: Instruction) -> None:
    """Lower stmatrix: a lane that names a row receives it and stores it."""
    sources = _tiles(e, i, i.operands[1])
    values = [(e.read(each, T.B32), T.B32) for each in sources]
    row = exchange(e, i, values, [T.B64, T.B64])
    stores, stored = e.fresh("row"), e.fresh("stored")
    names_row = e.value(f"icmp ult i32 {_lane(e)}, {8 * len(sources)}")
    e.line(f"br i1 {names_row}, label %{stores}, label %{stored}")
    e.label(stores)
    where = address(e, i, i.operands[0], 16, is_write=True)
    for word, value in enumerate(row):
        e.line(f"store i64 {value}, ptr {e.at(where, 8 * word)}, align 1")
    e.line(f"br label %{stored}")
    e.label(stored)


def turn_tile(e: Emitter, i: Instruction) -> None:
    """Lower movmatrix."""
    _is_known_tile(e, i)
    target, source = i.operands
    (value,) = exchange(e, i, [(e.read(source, T.B32), T.B32)], [T.B32])
    e.write(target, value, T.B32)


# ---- wmma


def wmma(e: Emitter, i: Instruction) -> None:
    """Lower wmma.load, wmma.store, wmma.mma."""
    if "mma" in i.modifiers:
        multiply(e, i)
        return
    part = part_of(i)
    if part is None or not 2 <= len(i.operands) <= 3:
        e.refuse("this form of wmma is not implemented")
    first, second, *stride = i.operands
    if "load" in i.modifiers:
        _load(e, i, part, first, second, stride)
    else:
        _store(e, i, part, first, second, stride)


def _load(
    e: Emitter,
    i: Instruction,
    part: Part,
    target: Operand,
    source: Operand,
    stride: list[Operand],
) -> None:
    held = fragment_of_part(part)
    targets = _held(e, target, held)
    type_, bits = _word_type(held), _piece_bits(part)
    words = []
    for register in range(len(targets)):
        word = "0"
        for piece in range(held.word_bits // bits):
            offset = _offset(e, part, held, register, piece, stride)
            where = address_at(e, i, source, offset, bits // 8, is_write=False)
            value = e.value(f"load i{bits}, ptr {where}, align 1")
            if bits < held.word_bits:
                value = e.value(f"zext i{bits} {value} to i{held.word_bits}")
            value = e.value(f"shl i{held.word_bits} {value}, {bits * piece}")
            word = e.value(f"or i{held.word_bits} {word}, {value}")
        words.append(word)
    for each, word in zip(targets, words, strict=True):
        e.write(each, word, type_)


def _store(
    e: Emitter,
    i: Instruction,
    part: Part,
    target: Operand,
    source: Operand,
    stride: list[Operand],
) -> None:
    held = fragment_of_part(part)
    type_, bits = _word_type(held), _piece_bits(part)
    for register, each in enumerate(_held(e, source, held)):
        word = e.read(each, type_)
        for piece in range(held.word_bits // bits):
            offset = _offset(e, part, held, register, piece, stride)
            where = address_at(e, i, target, offset, bits // 8, is_write=True)
            value = e.value(f"lshr i{held.word_bits} {word}, {bits * piece}")
            if bits < held.word_bits:
                value = e.value(f"trunc i{held.word_bits} {value} to i{bits}")
            e.line(f"store i{bits} {value}, ptr {where}, align 1")


def _piece_bits(part: Part) -> int:
    """The size of one move: an element, or a byte of smaller elements."""
    return max(8, ELEMENT_BITS[part.type])


def _offset(
    e: Emitter, part: Part, held: Fragment, register: int, piece: int, stride: list[Operand]
) -> str:
    """The distance of a piece of a register from the matrix's beginning, from a table by lanes."""
    each = held.word_bits // _piece_bits(part)
    step = held.parts // each or 1
    lines, withins = [], []
    for lane in range(LANES):
        element = (register * LANES + lane) * held.parts + piece * step
        _, row, column = held.positions[element]
        line, along = (row, column) if part.is_by_rows else (column, row)
        lines.append(line)
        withins.append(along * ELEMENT_BITS[part.type] // 8)
    lane_number = _lane(e)
    line_text, within = (_by_lane(e, lane_number, table) for table in (lines, withins))
    if stride:
        count = e.value(f"zext i32 {e.read(stride[0], T.U32)} to i64")
        apart = e.value(f"lshr i64 {e.value(f'mul i64 {count}, {part.stride_bits}')}, 3")
    else:
        apart = str(part.line_bytes)
    return e.value(f"add i64 {e.value(f'mul i64 {line_text}, {apart}')}, {within}")


def _by_lane(e: Emitter, lane: str, table: list[int]) -> str:
    """The lane's entry of a constant table, as i64; the table is a vector of i16."""
    words = ", ".join(f"i16 {each}" for each in table)
    entry = e.value(f"extractelement <{LANES} x i16> <{words}>, i32 {lane}")
    return e.value(f"zext i16 {entry} to i64")
