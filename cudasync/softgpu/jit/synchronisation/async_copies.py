"""Cellar, jit. cp.async: copies from global to shared memory that a program awaits later.

A copy completes immediately. Groups and waits then do nothing, and an mbarrier that tracks copies
gets its arrival at once. Lanes that read less than they write fill up with zeros; a lane that reads
nothing may name any source.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Negated, Register
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.interface.access_recording import Touch
from cudasync.softgpu.interface.race_records import ARRIVES
from cudasync.softgpu.jit.addressing.address_spaces import Place, place
from cudasync.softgpu.jit.addressing.memcheck import check, lay_out, next_lane
from cudasync.softgpu.jit.checks.initialisation_calls import note_window
from cudasync.softgpu.jit.checks.race_calls import note_access, note_copies, note_news
from cudasync.softgpu.jit.checks.recording_calls import note
from cudasync.softgpu.jit.matrix.matrix_rows import moved_by, within_mask
from cudasync.softgpu.jit.memory.coalescing import Access
from cudasync.softgpu.jit.synchronisation.mbarriers import change
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_bits, mask_word
from cudasync.softgpu.jit.vector_ir.values import Value, integer

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

_WAITS = frozenset({"commit_group", "wait_group", "wait_all"})


def _copy(lowering: Lowering, instruction: ir.Instruction) -> None:
    modifiers = set(instruction.modifiers)
    if "async" not in modifiers:
        lowering.refuse(instruction)
    if modifiers & _WAITS:
        note_copies(lowering, instruction)
        return
    if "mbarrier" in modifiers:
        _track(lowering, instruction)
    elif {"ca", "cg"} & modifiers and "global" in modifiers and instruction.operands[2:]:
        _move(lowering, instruction)
    else:
        lowering.refuse(instruction)


def _track(lowering: Lowering, instruction: ir.Instruction) -> None:
    """Arrive at an mbarrier, because all copies are complete.

    Without .noinc the object first expects one arrival more, so that nothing changes; only the
    address must be valid.
    """
    (where,) = instruction.operands
    note_copies(lowering, instruction)
    note_news(lowering, instruction, where, ARRIVES, lowering.mask)
    if "noinc" in instruction.modifiers:
        change(lowering, instruction, "arrive", where)
    else:
        Access(lowering, place(lowering, instruction, where), 8, 1).check_lanes()


def _move(lowering: Lowering, instruction: ir.Instruction) -> None:
    target_operand, source_operand, size_operand, *rest = instruction.operands
    if "L2::cache_hint" in instruction.modifiers:
        rest = rest[:-1]
    sizes = (16,) if "cg" in instruction.modifiers else (4, 8, 16)
    if not isinstance(size_operand, Integer) or size_operand.value not in sizes or len(rest) > 1:
        lowering.refuse(instruction)
    size = size_operand.value
    builder = lowering.builder
    target = place(lowering, instruction, target_operand)
    source = place(lowering, replace(instruction, modifiers=("global",)), source_operand)
    length = _length(lowering, rest[0], size) if rest else integer("i32", size)
    Access(lowering, target, size, 1).check_lanes()
    note_access(lowering, instruction, target, size, Touch.WRITTEN)
    note_window(lowering, instruction, target, size, Touch.WRITTEN)
    if length.literal == size:
        Access(lowering, source, size, 1).check_lanes()
        note(lowering, instruction, source, size, Touch.READ)
    else:
        length = builder.varying(length)
        _check_parts(lowering, instruction, source, length, size)
    targets, target_spacing = lay_out(lowering, target.address)
    sources, source_spacing = lay_out(lowering, source.address)
    lengths = builder.scratch("copy.lengths", 4 * builder.lanes)
    vector = builder.vector_type("i32")
    builder.emit(f"store {vector} {builder.vector(length)}, ptr {lengths}, align 64")
    word = mask_word(builder, lowering.mask)
    builder.emit(
        f"call void {_function(builder, size)}(ptr {targets}, i32 {target_spacing},"
        f" ptr {sources}, i32 {source_spacing}, ptr {lengths}, i32 {word})"
    )


def _length(lowering: Lowering, operand: ir.Operand, size: int) -> Value:
    """The number of bytes to read: src-size, or none if ignore-src is true."""
    builder = lowering.builder
    register = operand.register if isinstance(operand, Negated) else operand
    if isinstance(register, Register) and register.type is ScalarType.PRED:
        ignores = builder.flat(lowering.read(operand, ScalarType.PRED))
        return builder.select(ignores, integer("i32", 0), integer("i32", size))
    given = builder.flat(lowering.read(operand, ScalarType.U32))
    if given.literal is not None and 0 <= given.literal <= size:
        return given
    return builder.intrinsic("umin", "i32", given, integer("i32", size))


def _check_parts(
    lowering: Lowering, instruction: ir.Instruction, source: Place, length: Value, size: int
) -> None:
    """Check and record the bytes that are read: all, or (rarely) a first part."""
    builder = lowering.builder
    full = builder.compare("icmp eq", length, integer("i32", size))
    with within_mask(lowering, builder.vector(full)):
        Access(lowering, source, size, 1).check_lanes()
        note(lowering, instruction, source, size, Touch.READ)
    some = builder.compare("icmp ne", length, integer("i32", 0))
    part = builder.binary("xor", some, full)
    with within_mask(lowering, builder.vector(part)):
        look, go_on = builder.fresh("part"), builder.fresh("go")
        lanes = builder.lanes
        bits = mask_bits(builder, lowering.mask)
        is_any = builder.name(f"icmp ne i{lanes} {bits}, 0")
        builder.emit(f"br i1 {is_any}, label %{look}, label %{go_on}, !prof !1")
        builder.label(look)
        if lowering.settings.memcheck:
            _check_ends(lowering, source, length, size)
        if lowering.settings.record:
            for count in range(1, size):
                same = builder.compare("icmp eq", length, integer("i32", count))
                with within_mask(lowering, builder.vector(same)):
                    note(lowering, instruction, source, count, Touch.READ)
        builder.emit(f"br label %{go_on}")
        builder.label(go_on)


def _check_ends(lowering: Lowering, source: Place, length: Value, size: int) -> None:
    """Check alignment, the first byte and the last: an allocation has no gaps of a few bytes."""
    builder = lowering.builder
    address = builder.varying(source.address)
    low_bits = builder.binary("and", address, integer("i64", size - 1))
    crooked = builder.compare("icmp ne", low_bits, integer("i64", 0))
    with within_mask(lowering, builder.vector(crooked)):
        # Alignment is checked first, so that the report names it.
        check(lowering, address, size, source.where, None)
    check(lowering, address, 1, source.where, None)
    wide = builder.apply("zext {T} {0} to {R}", "i64", length)
    last = builder.binary("sub", wide, integer("i64", 1))
    far = moved_by(lowering, source, last)
    check(lowering, far.address, 1, source.where, None)


def _function(builder: Builder, size: int) -> str:
    """The function that copies up to `size` bytes for each lane of a mask, and zero-fills."""
    name = f"@cudasync.copy.{size}"
    bits = 8 * size
    builder.functions[name] = f"""
define void {name}(ptr %targets, i32 %target.spacing, ptr %sources, i32 %source.spacing,
    ptr %lengths, i32 %mask) {{
entry:
{next_lane("copied")}
  %target.place = mul i32 %index, %target.spacing
  %target.at = getelementptr i64, ptr %targets, i32 %target.place
  %target.address = load i64, ptr %target.at
  %target = inttoptr i64 %target.address to ptr
  %source.place = mul i32 %index, %source.spacing
  %source.at = getelementptr i64, ptr %sources, i32 %source.place
  %source.address = load i64, ptr %source.at
  %source = inttoptr i64 %source.address to ptr
  %length.at = getelementptr i32, ptr %lengths, i32 %index
  %length = load i32, ptr %length.at
  %is.whole = icmp eq i32 %length, {size}
  br i1 %is.whole, label %whole, label %fill
whole:
  %all = load i{bits}, ptr %source, align 1
  store i{bits} %all, ptr %target, align 1
  br label %copied
fill:
  store i{bits} 0, ptr %target, align 1
  br label %some
some:
  %at = phi i32 [0, %fill], [%at.next, %byte]
  %is.filled = icmp uge i32 %at, %length
  br i1 %is.filled, label %copied, label %byte
byte:
  %from = getelementptr i8, ptr %source, i32 %at
  %to = getelementptr i8, ptr %target, i32 %at
  %value = load i8, ptr %from
  store i8 %value, ptr %to
  %at.next = add i32 %at, 1
  br label %some
copied:
  br label %next
done:
  ret void
}}
"""
    return name


def _nothing(_lowering: Lowering, _instruction: ir.Instruction) -> None:
    """Hints: no dependent grid could start early, and registers are not rationed."""


EMITTERS: dict[str, Emitter] = {
    "cp": _copy,
    "griddepcontrol": _nothing,
    "setmaxnreg": _nothing,
}
