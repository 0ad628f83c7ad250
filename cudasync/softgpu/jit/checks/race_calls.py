"""Cellar, jit. Calls that check the threads of a kernel for races, if the setting is on.

An access is noted before it is done. `race_functions`, `race_accesses`, `race_cells` and
`race_synchronisation` define the called functions. Without the setting a kernel's text has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.softgpu.interface import race_records
from cudasync.softgpu.interface.access_recording import Touch
from cudasync.softgpu.jit.addressing.address_spaces import place
from cudasync.softgpu.jit.addressing.memcheck import lay_out
from cudasync.softgpu.jit.checks import (
    race_accesses,
    race_cells,
    race_functions,
    race_lines,
    race_rows,
    race_synchronisation,
)
from cudasync.softgpu.jit.kernel_abi.barrier_operands import number_and_count
from cudasync.softgpu.jit.kernel_abi.job_record import Where
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.values import bits_of, integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.addressing.address_spaces import Place
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
    from cudasync.softgpu.jit.vector_ir.values import Value

_FUNCTIONS = {
    **race_functions.FUNCTIONS,
    **race_accesses.FUNCTIONS,
    **race_lines.FUNCTIONS,
    **race_rows.FUNCTIONS,
    **race_synchronisation.FUNCTIONS,
}
_WHO = "ptr %job, i32 %ctaid.x, i32 %ctaid.y, i32 %ctaid.z, i32 %warp"
_SHARED, _GLOBAL, _EITHER = range(3)


def _is_off(lowering: Lowering) -> bool:
    return not lowering.settings.races or lowering.builder.is_silent


def _builder(lowering: Lowering) -> Builder:
    builder = lowering.builder
    builder.functions.update(_FUNCTIONS)
    return builder


def note_access(
    lowering: Lowering,
    instruction: ir.Instruction,
    where: Place,
    size: int,
    kind: Touch,
    values: Sequence[Value] = (),
) -> None:
    """Note that each active lane accesses `size` bytes, storing `values` if these are known."""
    if _is_off(lowering):
        return
    space = instruction.space
    if where.where is Where.WINDOW:
        if space is not StateSpace.SHARED:
            return  # The thread's own memory.
        if lowering.is_quiet:
            # A flag in shared memory may order accesses of global memory.
            is_known = lowering.program.has_fences and not instruction.is_guess
            if race_records.is_strong(instruction) and is_known:
                _note_strong(lowering, instruction, where)
            return
        room = _SHARED
    else:
        room = _EITHER if where.where is Where.ANYWHERE else _GLOBAL
    if space is StateSpace.CONST:
        return
    builder = _builder(lowering)
    is_strong = race_records.is_strong(instruction)
    if is_strong and not instruction.is_guess:
        _note_strong(lowering, instruction, where)
    addresses, spacing = lay_out(lowering, where.address)
    mask = mask_word(builder, lowering.mask)
    bits = lowering.program.sites.get(lowering.number(), 0) << race_records.SITE_SHIFT
    # Atomics of block scope on global memory are not marked strong: the check must hear of two in
    # different blocks, and of plain accesses.
    if is_strong and (room == _SHARED or race_records.is_wide(instruction)):
        bits |= race_records.STRONG
    if instruction.opcode == "cp" and kind is Touch.WRITTEN:
        bits |= race_records.PENDING
    way = race_cells.READ if kind is Touch.READ else race_cells.WRITE
    if kind == Touch.READ | Touch.WRITTEN:
        way = race_cells.ATOMIC
    stored, each = ("null", 1) if is_strong or not values else _lay_out_values(builder, values)
    name = race_accesses.NOTE_NAME if room == _GLOBAL else race_records.NEAR_NAME
    builder.emit(
        f"call void {name}({_WHO}, i64 {bits}, i64 {way}, i64 {room}, i64 {size},"
        f" ptr {stored}, i64 {each}, i64 {builder.lanes}, ptr {addresses}, i32 {spacing},"
        f" i32 {mask})"
    )


def _note_strong(lowering: Lowering, instruction: ir.Instruction, where: Place) -> None:
    """Note the order that a strong access may establish between threads."""
    builder = _builder(lowering)
    addresses, spacing = lay_out(lowering, where.address)
    mask = mask_word(builder, lowering.mask)
    strength = race_records.strength_of(instruction).value
    builder.emit(
        f"call void {race_synchronisation.STRONG_NAME}({_WHO}, i32 {mask}, i64 {strength},"
        f" ptr {addresses}, i32 {spacing})"
    )


def _lay_out_values(builder: Builder, values: Sequence[Value]) -> tuple[str, int]:
    """The values of all lanes in memory, element by element, and the size of each in bytes."""
    type_ = values[0].type
    vector = builder.vector_type(type_)
    memory = builder.allocate(vector, len(values))
    for n, value in enumerate(values):
        slot = builder.name(f"getelementptr {vector}, ptr {memory}, i32 {n}")
        builder.emit(f"store {vector} {builder.vector(value)}, ptr {slot}, align 64")
    return memory, max(1, bits_of(type_) // 8)


def note_barrier(lowering: Lowering, instruction: ir.Instruction, mask: str) -> None:
    """Note that lanes arrive at a barrier of the block."""
    if _is_off(lowering):
        return
    builder = _builder(lowering)
    named = number_and_count(lowering, instruction)
    number, count = (builder.extend(each, "i64", is_signed=False).text for each in named)
    waits = int("arrive" not in instruction.modifiers)
    word = mask_word(builder, mask)
    builder.emit(
        f"call void {race_synchronisation.ARRIVE_NAME}({_WHO}, i32 {word}, i64 {number},"
        f" i64 {count},"
        f" i64 {waits})"
    )


def note_release(lowering: Lowering, names: tuple[str, str], mask: str) -> None:
    """Note that lanes go on behind a barrier of the block; `names` are its number and count."""
    if _is_off(lowering):
        return
    builder = _builder(lowering)
    number, count = names
    word = mask_word(builder, mask)
    builder.emit(
        f"call void {race_synchronisation.LEAVE_NAME}({_WHO}, i32 {word},"
        f" i64 {number}, i64 {count})"
    )


def note_warp_barrier(lowering: Lowering, instruction: ir.Instruction) -> None:
    """Note a bar.warp.sync of the active lanes."""
    if _is_off(lowering):
        return
    builder = _builder(lowering)
    members = lowering.read(instruction.operands[-1], ScalarType.U32)
    wide = builder.extend(builder.flat(members), "i64", is_signed=False)
    masks, spacing = lay_out(lowering, wide)
    word = mask_word(builder, lowering.mask)
    builder.emit(
        f"call void {race_synchronisation.WARP_NAME}({_WHO}, i32 {word},"
        f" ptr {masks}, i32 {spacing})"
    )


def note_fence(lowering: Lowering, instruction: ir.Instruction) -> None:
    """Note a membar or fence."""
    if _is_off(lowering):
        return
    builder = _builder(lowering)
    word = mask_word(builder, lowering.mask)
    is_wide = int(race_records.is_wide(instruction))
    builder.emit(f"call void {race_synchronisation.FENCE_NAME}({_WHO}, i32 {word}, i64 {is_wide})")


def note_news(
    lowering: Lowering,
    instruction: ir.Instruction,
    operand: ir.Operand,
    strength: race_records.Strength,
    mask: str,
) -> None:
    """Note that the lanes of a mask arrive at an mbarrier, or find its phase complete."""
    if _is_off(lowering):
        return
    builder = _builder(lowering)
    addresses, spacing = lay_out(lowering, place(lowering, instruction, operand).address)
    word = mask_word(builder, mask)
    builder.emit(
        f"call void {race_synchronisation.STRONG_NAME}({_WHO}, i32 {word}, i64 {strength.value},"
        f" ptr {addresses}, i32 {spacing})"
    )


def note_copies(lowering: Lowering, instruction: ir.Instruction) -> None:
    """cp.async: note the end of a group, or a wait for copies."""
    if _is_off(lowering):
        return
    builder = _builder(lowering)
    groups = integer("i64", 0)
    if "commit_group" in instruction.modifiers:
        groups = integer("i64", -1)
    elif "wait_group" in instruction.modifiers:
        groups = lowering.read(instruction.operands[0], ScalarType.U64)
    word = mask_word(builder, lowering.mask)
    builder.emit(
        f"call void {race_synchronisation.COPIES_NAME}({_WHO}, i32 {word}, i64 {groups.text})"
    )
