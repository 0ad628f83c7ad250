"""Cellar, jit. Writes the loop over blocks and warps as LLVM IR text.

`i32 @kernel(ptr %job)` runs blocks FIRST_BLOCK to END_BLOCK of the job one after another, and the
warps of a block in order. A kernel with suspension points runs its warps in rounds: in each round
every warp that can go on has one turn. When all remaining warps wait at barriers, the barrier
opens. If a block only waits for memory, the kernel returns, and FIRST_BLOCK names that block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.interface.poison import WORD
from cudasync.softgpu.jit.block_loop.warp_loop import (
    emit_next_row,
    emit_place,
    kept_in,
    warp_parameters,
)
from cudasync.softgpu.jit.kernel_abi.job_record import (
    AT_BARRIER,
    BARRIER_WORDS,
    BARRIERS,
    DONE,
    FAILED,
    FaultCode,
    Field,
    Status,
    read_field,
    write_field,
)
from cudasync.softgpu.jit.vector_ir.builder import Builder

if TYPE_CHECKING:
    from cudasync.softgpu.jit.kernel_abi.specialisation import Variant
    from cudasync.softgpu.jit.transforms.slabs import Slab

_AXES = "xyz"
_POISON = "@cudasync.poison"
# Fresh shared memory is poison, so that code that relies on zeros fails. It is stored in lines of
# 64 bytes, four at a time while four are left. The memory is aligned to lines, and so is the part
# of a slot behind it.
_LINE = f"store <32 x i16> splat (i16 {WORD}), ptr"
POISONING = {
    _POISON: f"""
define void {_POISON}(i64 %address, i64 %size) nounwind {{
entry:
  %start = inttoptr i64 %address to ptr
  %fours = and i64 %size, -256
  %are.fours = icmp ne i64 %fours, 0
  br i1 %are.fours, label %four, label %rest
four:
  %at = phi i64 [0, %entry], [%behind, %four]
  %first = getelementptr i8, ptr %start, i64 %at
  %second = getelementptr i8, ptr %first, i64 64
  %third = getelementptr i8, ptr %first, i64 128
  %fourth = getelementptr i8, ptr %first, i64 192
  {_LINE} %first, align 64
  {_LINE} %second, align 64
  {_LINE} %third, align 64
  {_LINE} %fourth, align 64
  %behind = add i64 %at, 256
  %are.more = icmp ult i64 %behind, %fours
  br i1 %are.more, label %four, label %rest
rest:
  %is.one = icmp ult i64 %fours, %size
  br i1 %is.one, label %one, label %done
one:
  %last = phi i64 [%fours, %rest], [%onward, %one]
  %place = getelementptr i8, ptr %start, i64 %last
  {_LINE} %place, align 64
  %onward = add i64 %last, 64
  %is.another = icmp ult i64 %onward, %size
  br i1 %is.another, label %one, label %done
done:
  ret void
}}
"""
}


def begin_blocks(builder: Builder, again: str) -> None:
    """Write the function from its entry to `block.fresh`; a resumed block goes on at `again`.

    `end_blocks` completes the text; its label is the end of a block.
    """
    emit, label = builder.emit, builder.label
    emit("%grid.x = zext i32 %nctaid.x to i64")
    emit("%grid.y = zext i32 %nctaid.y to i64")
    emit("br label %blocks")
    label("blocks")
    emit("%block = phi i64 [%first.block, %entry], [%following, %block.next]")
    emit("%is.old = phi i64 [%is.resumed, %entry], [0, %block.next]")
    emit("%is.over = icmp uge i64 %block, %end.block")
    emit("br i1 %is.over, label %finished, label %block.begin")
    label("block.begin")
    emit("%wide.x = urem i64 %block, %grid.x")
    emit("%lines = udiv i64 %block, %grid.x")
    emit("%wide.y = urem i64 %lines, %grid.y")
    emit("%wide.z = udiv i64 %lines, %grid.y")
    for axis in _AXES:
        emit(f"%ctaid.{axis} = trunc i64 %wide.{axis} to i32")
    emit("%is.fresh = icmp eq i64 %is.old, 0")
    emit(f"br i1 %is.fresh, label %block.fresh, label %{again}")
    label("block.fresh")
    write_field(builder, Field.BUDGET_LEFT, "%grain")
    emit("%reserve = sub i64 %budget, %grain")
    write_field(builder, Field.RESERVE, "%reserve")


def poison_shared(builder: Builder) -> None:
    """Poison fresh shared memory."""
    builder.emit(f"call void {_POISON}(i64 %shared.address, i64 %shared.bytes)")


def end_blocks(builder: Builder, cost: str) -> None:
    """End a block, or report a fault; `cost` is that of a warp that runs each instruction once."""
    emit, label = builder.emit, builder.label
    label("block.done")
    _emit_account(builder, cost)
    emit("%following = add i64 %block, 1")
    emit("br label %blocks")
    label("finished")
    write_field(builder, Field.FIRST_BLOCK, "%end.block")
    emit(f"ret i32 {Status.DONE.value}")
    label("failed")
    write_field(builder, Field.FIRST_BLOCK, "%block")
    emit(f"ret i32 {Status.FAULT.value}")
    builder.lines[:0] = ["entry:", *kept_in(builder.lines, builder.lanes)]


def _emit_account(builder: Builder, cost: str) -> None:
    """Add the block's cost to the total, because too many blocks could also run for ever."""
    emit = builder.emit
    emit(f"%asked = sub i64 %budget, {read_field(builder, Field.RESERVE)}")
    emit(f"%loops.cost = sub i64 %asked, {read_field(builder, Field.BUDGET_LEFT)}")
    emit("%own.warps = zext i32 %warps to i64")
    emit(f"%own.cost = mul i64 %own.warps, {cost}")
    emit("%block.cost = add i64 %loops.cost, %own.cost")
    emit(f"%spent = add i64 {read_field(builder, Field.SPENT)}, %block.cost")
    write_field(builder, Field.SPENT, "%spent")
    emit(f"%is.spent = icmp ugt i64 %spent, {read_field(builder, Field.TOTAL)}")
    emit("br i1 %is.spent, label %total.spent, label %block.next")
    builder.label("total.spent")
    timeout = FaultCode.TIMEOUT.value
    emit(f"call void @cudasync.report(ptr %job, i64 {timeout}, i64 0, i32 0, i64 0)")
    write_field(builder, Field.FAULT_WARP, "0")
    emit("br label %failed")
    builder.label("block.next")


def clear(builder: Builder, address: str, size: str) -> None:
    """Zero memory; `address` and `size` are texts of i64 values."""
    builder.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    place = builder.name(f"inttoptr i64 {address} to ptr")
    builder.emit(f"call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {size}, i1 false)")


class Blocks:
    """The text that runs the blocks of a kernel with one function for its warps, `@warp`."""

    def __init__(
        self,
        variant: Variant,
        *,
        frame_bytes: int,
        has_stops: bool,
        is_named: bool,
        axes: str,
    ) -> None:
        self.builder = Builder(variant.lanes)
        self._variant = variant
        self._frame_bytes = frame_bytes
        self._has_stops = has_stops
        self._is_named = is_named
        # The axes of the coordinates that warps read.
        self._axes = axes

    def emit(self, *, slab: Slab, uses_shared: bool, cost: int) -> None:
        builder = self.builder
        emit = builder.emit
        begin_blocks(builder, "rounds")
        if uses_shared:
            poison_shared(builder)
        if self._has_stops:
            emit("%states.address = ptrtoint ptr %states to i64")
            emit("%wide.warps = zext i32 %warps to i64")
            emit("%states.bytes = shl i64 %wide.warps, 2")
            clear(builder, "%states.address", "%states.bytes")
            if self._is_named:
                barriers = read_field(builder, Field.BARRIERS)
                clear(builder, barriers, str(4 * BARRIERS * BARRIER_WORDS))
            write_field(builder, Field.IS_RESUMED, "1")
        emit("br label %rounds")
        self._emit_round(slab)
        end_blocks(builder, str(cost))

    def _emit_round(self, slab: Slab) -> None:
        builder = self.builder
        emit, label, lanes = builder.emit, builder.label, builder.lanes
        label("rounds")
        fresh = "[0, %block.begin], [0, %block.fresh]"
        again = ""
        if self._has_stops:
            again = ", [%opened, %round.open]" if self._is_named else ", [-1, %round.open]"
            again += ", [0, %round.again]"
        emit(f"%release = phi i32 {fresh}{again}")
        emit("br label %warps.next")
        label("warps.next")
        emit("%warp = phi i32 [0, %rounds], [%warp.next, %warp.done]")
        for axis in self._axes:
            emit(f"%tid.{axis} = phi i32 [0, %rounds], [%next.{axis}, %warp.done]")
        if self._has_stops:
            emit("%alive = phi i1 [false, %rounds], [%alive.now, %warp.done]")
            emit("%spinning = phi i1 [false, %rounds], [%spinning.now, %warp.done]")
        for axis in _AXES[len(self._axes) :]:
            emit(f"%tid.{axis} = add i32 0, 0")
        emit("%wide.warp = zext i32 %warp to i64")
        if self._has_stops:
            emit("%state.at = getelementptr i32, ptr %states, i64 %wide.warp")
            emit("%state = load i32, ptr %state.at")
            emit(f"%is.done = icmp eq i32 %state, {DONE}")
            emit(f"%barrier.bit = and i32 %state, {AT_BARRIER}")
            emit("%can.go = icmp ule i32 %barrier.bit, 0")
            waits_at = "-1"
            if self._is_named:
                # The first word of a warp's frame says where the warp waits.
                emit(f"%header.offset = mul i64 %wide.warp, {self._frame_bytes}")
                emit("%header = getelementptr i8, ptr %frames, i64 %header.offset")
                waits_at = builder.name("load i32, ptr %header")
            emit(f"%opens.for.it = and i32 %release, {waits_at}")
            emit("%is.open = icmp ne i32 %opens.for.it, 0")
            emit("%goes = or i1 %can.go, %is.open")
            emit("%stays = xor i1 %goes, true")
            emit("%skips = or i1 %is.done, %stays")
            emit("br i1 %skips, label %warp.skipped, label %warp.run")
            label("warp.run")
            emit(f"%resume = and i32 %state, {AT_BARRIER - 1}")
        else:
            emit("%resume = add i32 0, 0")
        emit_place(
            builder,
            slab_stride=slab.stride,
            frame_bytes=self._frame_bytes,
            is_whole=self._variant.is_whole,
        )
        emit(f"%stack.left = add i64 0, {slab.size_bytes}")
        emit(f"%code = call i32 @warp({warp_parameters(lanes)})")
        emit(f"%is.bad = icmp eq i32 %code, {FAILED}")
        if not self._has_stops:
            emit("br i1 %is.bad, label %failed, label %warp.done")
        else:
            emit("br i1 %is.bad, label %failed, label %warp.ran")
            label("warp.ran")
            emit("store i32 %code, ptr %state.at")
            emit("br label %warp.done")
            label("warp.skipped")
            emit("br label %warp.done")
        label("warp.done")
        if self._has_stops:
            emit("%state.now = phi i32 [%code, %warp.ran], [%state, %warp.skipped]")
            emit(f"%lives = icmp ne i32 %state.now, {DONE}")
            emit("%alive.now = or i1 %alive, %lives")
            emit(f"%at.barrier = and i32 %state.now, {AT_BARRIER}")
            emit("%is.elsewhere = icmp eq i32 %at.barrier, 0")
            emit("%spins = and i1 %lives, %is.elsewhere")
            emit("%spinning.now = or i1 %spinning, %spins")
        emit("%warp.next = add i32 %warp, 1")
        emit_next_row(builder, self._axes)
        emit("%more = icmp ult i32 %warp.next, %warps")
        emit("br i1 %more, label %warps.next, label %round.done")
        label("round.done")
        if not self._has_stops:
            emit("br label %block.done")
            return
        emit("br i1 %alive.now, label %round.living, label %block.done")
        label("round.living")
        if self._is_named:
            arguments = "ptr %job, ptr %states, ptr %frames, i32 %warps, i1 %spinning.now"
            emit(f"%opened = call i32 @cudasync.open({arguments})")
            emit("%is.some.open = icmp ne i32 %opened, 0")
            emit("br i1 %is.some.open, label %round.open, label %round.shut")
            label("round.shut")
            emit("br i1 %spinning.now, label %yields, label %failed")
        else:
            emit("br i1 %spinning.now, label %yields, label %round.open")
        label("round.open")
        emit("br label %rounds")
        label("yields")
        emit(f"%has.moved = add i64 {read_field(builder, Field.HAS_MOVED)}, 0")
        emit("%moved = icmp ne i64 %has.moved, 0")
        emit("br i1 %moved, label %round.moved, label %rests")
        label("round.moved")
        write_field(builder, Field.HAD_MOVED, "1")
        write_field(builder, Field.HAS_MOVED, "0")
        emit(f"%rounds.left = sub i64 {read_field(builder, Field.ROUNDS)}, 1")
        write_field(builder, Field.ROUNDS, "%rounds.left")
        emit("%may.go = icmp sgt i64 %rounds.left, 0")
        emit("br i1 %may.go, label %round.again, label %rests")
        label("round.again")
        emit("br label %rounds")
        label("rests")
        write_field(builder, Field.FIRST_BLOCK, "%block")
        emit(f"ret i32 {Status.YIELDED.value}")
