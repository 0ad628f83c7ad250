"""Cellar, jit. mbarrier: objects in shared memory that count arrivals, phase after phase.

Lanes arrive one after the other, the first lane first. A block runs on one thread, so plain loads
and stores are enough. A wait instruction only polls: the loop around it waits, and is a suspension
point (see `suspension_points`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Sink
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.interface.race_records import ARRIVES, FINDS_OVER
from cudasync.softgpu.jit.addressing.address_spaces import place
from cudasync.softgpu.jit.addressing.memcheck import lay_out, next_lane
from cudasync.softgpu.jit.checks.race_calls import note_news
from cudasync.softgpu.jit.memory.coalescing import Access
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word, narrow_mask
from cudasync.softgpu.jit.vector_ir.values import Value, integer, varying
from cudasync.softgpu.semantics.mbarrier_layout import (
    BYTES_MASK,
    BYTES_SHIFT,
    COUNT_MASK,
    PARITY_SHIFT,
    PENDING_SHIFT,
    operation_of,
)

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

_SIZE = 8
_ONE = Integer(1)
# The effect of each operation on %expected, %pending and %bytes, given %count; whether the phase
# may end with it.
_CHANGES = {
    "init": (
        """  %expected.new = or i64 %count, 0
  %pending.new = or i64 %count, 0
  %bytes.new = or i64 0, 0
  %parity.new = or i64 0, 0""",
        False,
    ),
    "inval": (
        """  %expected.new = or i64 0, 0
  %pending.new = or i64 0, 0
  %bytes.new = or i64 0, 0
  %parity.new = or i64 0, 0""",
        False,
    ),
    "arrive": (
        """  %expected.new = or i64 %expected, 0
  %pending.new = sub i64 %pending, %count
  %bytes.new = or i64 %bytes, 0
  %parity.new = or i64 %parity, 0""",
        True,
    ),
    "arrive_drop": (
        """  %expected.new = sub i64 %expected, %count
  %pending.new = sub i64 %pending, %count
  %bytes.new = or i64 %bytes, 0
  %parity.new = or i64 %parity, 0""",
        True,
    ),
    "expect_tx": (
        """  %expected.new = or i64 %expected, 0
  %pending.new = or i64 %pending, 0
  %bytes.new = add i64 %bytes, %count
  %parity.new = or i64 %parity, 0""",
        False,
    ),
    "complete_tx": (
        """  %expected.new = or i64 %expected, 0
  %pending.new = or i64 %pending, 0
  %bytes.new = sub i64 %bytes, %count
  %parity.new = or i64 %parity, 0""",
        True,
    ),
}


def _mbarrier(lowering: Lowering, instruction: ir.Instruction) -> None:
    if instruction.types != (ScalarType.B64,):
        lowering.refuse(instruction)
    operation = operation_of(instruction.modifiers)
    operands = list(instruction.operands)
    match operation:
        case "pending_count":
            target, state = operands
            lowering.write(target, _pending(lowering, lowering.read(state, ScalarType.B64)))
        case "test_wait" | "try_wait":
            _test(lowering, instruction, operands)
        case "init" | "expect_tx" | "complete_tx":
            where, count = operands
            change(lowering, instruction, operation, where, count)
        case "inval":
            (where,) = operands
            change(lowering, instruction, operation, where)
        case "arrive" | "arrive_drop":
            _arrive(lowering, instruction, operation, operands)
        case _:
            lowering.refuse(instruction)


def _arrive(
    lowering: Lowering, instruction: ir.Instruction, operation: str, operands: list[ir.Operand]
) -> None:
    target, where, *count = operands
    if "expect_tx" in instruction.modifiers:
        (size,) = count
        change(lowering, instruction, "expect_tx", where, size)
        count = []
    state = change(lowering, instruction, operation, where, *count)
    if not isinstance(target, Sink):
        lowering.write(target, state)


def change(
    lowering: Lowering,
    instruction: ir.Instruction,
    operation: str,
    operand: ir.Operand,
    count: ir.Operand = _ONE,
) -> Value:
    """Do an operation on the object at an address, in each active lane; return its old value."""
    builder = lowering.builder
    where = place(lowering, instruction, operand)
    if operation in ("arrive", "arrive_drop"):
        note_news(lowering, instruction, operand, ARRIVES, lowering.mask)
    amount = lowering.read(count, ScalarType.U32)
    Access(lowering, where, _SIZE, 1).check_lanes()
    addresses, spacing = lay_out(lowering, where.address)
    wide, narrow = builder.vector_type("i64"), builder.vector_type("i32")
    states = builder.scratch("mbarrier.states", 8 * builder.lanes)
    counts = builder.scratch("mbarrier.counts", 4 * builder.lanes)
    builder.emit(f"store {narrow} {builder.vector(amount)}, ptr {counts}, align 64")
    builder.emit(f"store {wide} zeroinitializer, ptr {states}, align 64")
    word = mask_word(builder, lowering.mask)
    builder.emit(
        f"call void {_function(builder, operation)}(ptr {addresses}, i32 {spacing},"
        f" ptr {counts}, ptr {states}, i32 {word})"
    )
    return varying("i64", builder.name(f"load {wide}, ptr {states}, align 64"))


def _test(lowering: Lowering, instruction: ir.Instruction, operands: list[ir.Operand]) -> None:
    """Test whether a phase is over: the phase of a state, or the last phase with a parity."""
    builder = lowering.builder
    # The operand after the phase is a hint how long the thread may sleep.
    target, operand, phase = operands[:3]
    if "parity" in instruction.modifiers:
        parity = builder.extend(
            builder.flat(lowering.read(phase, ScalarType.U32)), "i64", is_signed=False
        )
        asked = builder.binary("and", builder.flat(parity), integer("i64", 1))
    else:
        state = builder.flat(lowering.read(phase, ScalarType.B64))
        asked = builder.binary("lshr", state, integer("i64", PARITY_SHIFT))
    where = place(lowering, instruction, operand)
    # The load must see arrivals of other threads.
    builder.emit('fence syncscope("singlethread") seq_cst')
    (found,) = Access(lowering, where, _SIZE, 1).load("i64")
    current = builder.binary("lshr", found, integer("i64", PARITY_SHIFT))
    is_over = builder.compare("icmp ne", current, asked)
    if lowering.settings.races:
        found_over = narrow_mask(builder, lowering.mask, builder.vector(is_over))
        note_news(lowering, instruction, operand, FINDS_OVER, found_over)
    lowering.write(target, is_over)


def _pending(lowering: Lowering, state: Value) -> Value:
    builder = lowering.builder
    moved = builder.binary("lshr", builder.flat(state), integer("i64", PENDING_SHIFT))
    return builder.truncate(builder.binary("and", moved, integer("i64", COUNT_MASK)), "i32")


def _function(builder: Builder, operation: str) -> str:
    """The function that does an operation for each lane of a mask."""
    name = f"@cudasync.mbarrier.{operation}"
    changes, may_end = _CHANGES[operation]
    builder.functions[name] = f"""
define void {name}(ptr %addresses, i32 %spacing, ptr %counts, ptr %states, i32 %mask) {{
entry:
{next_lane()}
  %place = mul i32 %index, %spacing
  %address.at = getelementptr i64, ptr %addresses, i32 %place
  %address = load i64, ptr %address.at
  %object = inttoptr i64 %address to ptr
  %count.at = getelementptr i32, ptr %counts, i32 %index
  %short = load i32, ptr %count.at
  %count = zext i32 %short to i64
  %word = load i64, ptr %object, align 1
  %state.at = getelementptr i64, ptr %states, i32 %index
  store i64 %word, ptr %state.at
  %expected = and i64 %word, {COUNT_MASK}
  %pending.high = lshr i64 %word, {PENDING_SHIFT}
  %pending = and i64 %pending.high, {COUNT_MASK}
  %bytes.high = lshr i64 %word, {BYTES_SHIFT}
  %bytes = and i64 %bytes.high, {BYTES_MASK}
  %parity = lshr i64 %word, {PARITY_SHIFT}
{changes}
  %expected.kept = and i64 %expected.new, {COUNT_MASK}
  %pending.kept = and i64 %pending.new, {COUNT_MASK}
  %bytes.kept = and i64 %bytes.new, {BYTES_MASK}
  %awaited = or i64 %pending.kept, %bytes.kept
  %is.complete = icmp eq i64 %awaited, 0
  %ends = and i1 %is.complete, {"true" if may_end else "false"}
  %step = zext i1 %ends to i64
  %parity.kept = xor i64 %parity.new, %step
  %pending.next = select i1 %ends, i64 %expected.kept, i64 %pending.kept
  %pending.placed = shl i64 %pending.next, {PENDING_SHIFT}
  %bytes.placed = shl i64 %bytes.kept, {BYTES_SHIFT}
  %parity.placed = shl i64 %parity.kept, {PARITY_SHIFT}
  %counts.placed = or i64 %expected.kept, %pending.placed
  %rest.placed = or i64 %bytes.placed, %parity.placed
  %word.new = or i64 %counts.placed, %rest.placed
  store i64 %word.new, ptr %object, align 1
  br label %next
done:
  ret void
}}
"""
    return name


EMITTERS: dict[str, Emitter] = {"mbarrier": _mbarrier}
