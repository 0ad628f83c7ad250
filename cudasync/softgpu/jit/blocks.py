"""Cellar, jit. The loop over blocks and warps, as LLVM IR text.

`i32 @kernel(ptr %job)` runs blocks FIRST_BLOCK to END_BLOCK of the job one after another, and
the warps of a block in order. Where the kernel has stops it runs them in rounds: in each round
every warp that can go on has one turn; when all that are left wait at barriers, the barrier
opens. A block that only waits for memory makes the kernel return; FIRST_BLOCK then names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.barriers import NUMBERS, WORDS
from cudasync.softgpu.jit.builder import Builder
from cudasync.softgpu.jit.frames import AT_BARRIER, DONE, FAILED
from cudasync.softgpu.jit.job import Field, Status, read_field, write_field

if TYPE_CHECKING:
    from cudasync.softgpu.jit.lowering import Variant

# Fresh shared memory holds this in every byte, so that code that counts on zeros fails.
POISON = 0xA5
_AXES = "xyz"

# The arguments of the warp function that do not change within a launch, with their fields.
_LAUNCH_ARGUMENTS = [
    ("ptr", "%symbols", Field.SYMBOLS),
    ("ptr", "%caches", Field.CACHES),
    ("i64", "%parameters.address", Field.PARAMETERS),
    ("i64", "%shared.address", Field.SHARED),
    ("i64", "%shared.bytes", Field.SHARED_BYTES),
    *(("i32", f"%ntid.{axis}", Field[f"NTID_{axis.upper()}"]) for axis in _AXES),
    *(("i32", f"%nctaid.{axis}", Field[f"NCTAID_{axis.upper()}"]) for axis in _AXES),
]


def warp_arguments(lanes: int) -> list[tuple[str, str]]:
    """Type and name of every argument of the warp function."""
    return [
        ("ptr", "%job"),
        *((type_, name) for type_, name, _ in _LAUNCH_ARGUMENTS),
        *(("i32", f"%ctaid.{axis}") for axis in _AXES),
        *(("i32", f"%tid.{axis}") for axis in _AXES),
        ("i32", "%warp"),
        ("i64", "%local.address"),
        ("ptr", "%frame"),
        (f"<{lanes} x i1>", "%active"),
        ("i32", "%resume"),
        ("i32", "%release"),
        ("i64", "%stack.left"),
    ]


def warp_parameters(lanes: int) -> str:
    return ", ".join(f"{type_} {name}" for type_, name in warp_arguments(lanes))


class Blocks:
    """The text of `@kernel`."""

    def __init__(
        self, variant: Variant, *, frame_bytes: int, has_stops: bool, is_named: bool
    ) -> None:
        self.builder = Builder(variant.lanes)
        self._variant = variant
        self._frame_bytes = frame_bytes
        self._has_stops = has_stops
        self._is_named = is_named

    def emit(self, *, local_bytes: int, uses_shared: bool) -> None:
        builder = self.builder
        emit, label = builder.emit, builder.label
        label("entry")
        for type_, name, field in _LAUNCH_ARGUMENTS:
            self._keep(name, type_, field)
        self._keep("%local.start", "i64", Field.LOCAL)
        self._keep("%frames", "ptr", Field.FRAMES)
        self._keep("%states", "ptr", Field.STATES)
        self._keep("%warps", "i32", Field.WARPS)
        self._keep("%budget", "i64", Field.BUDGET)
        self._keep("%first", "i64", Field.FIRST_BLOCK)
        self._keep("%end", "i64", Field.END_BLOCK)
        self._keep("%is.resumed", "i64", Field.IS_RESUMED)
        lanes = builder.lanes
        last = read_field(builder, Field.LAST_MASK, f"i{lanes}")
        emit(f"%last.mask = bitcast i{lanes} {last} to <{lanes} x i1>")
        emit("%last.warp = sub i32 %warps, 1")
        emit("%grid.x = zext i32 %nctaid.x to i64")
        emit("%grid.y = zext i32 %nctaid.y to i64")
        emit("br label %blocks")
        label("blocks")
        emit("%block = phi i64 [%first, %entry], [%block.next, %block.done]")
        emit("%is.old = phi i64 [%is.resumed, %entry], [0, %block.done]")
        emit("%is.over = icmp uge i64 %block, %end")
        emit("br i1 %is.over, label %finished, label %block.begin")
        label("block.begin")
        emit("%wide.x = urem i64 %block, %grid.x")
        emit("%rows = udiv i64 %block, %grid.x")
        emit("%wide.y = urem i64 %rows, %grid.y")
        emit("%wide.z = udiv i64 %rows, %grid.y")
        for axis in _AXES:
            emit(f"%ctaid.{axis} = trunc i64 %wide.{axis} to i32")
        emit("%is.fresh = icmp eq i64 %is.old, 0")
        emit("br i1 %is.fresh, label %block.fresh, label %rounds")
        label("block.fresh")
        write_field(builder, Field.BUDGET_LEFT, "%budget")
        if uses_shared:
            self._fill("%shared.address", str(POISON), "%shared.bytes")
        if self._has_stops:
            emit("%states.address = ptrtoint ptr %states to i64")
            emit("%wide.warps = zext i32 %warps to i64")
            emit("%states.bytes = shl i64 %wide.warps, 2")
            self._fill("%states.address", "0", "%states.bytes")
            if self._is_named:
                barriers = read_field(builder, Field.BARRIERS)
                self._fill(barriers, "0", str(4 * NUMBERS * WORDS))
        emit("br label %rounds")
        self._emit_round(local_bytes)
        label("block.done")
        emit("%block.next = add i64 %block, 1")
        emit("br label %blocks")
        label("finished")
        emit(f"ret i32 {Status.DONE.value}")
        label("failed")
        write_field(builder, Field.FIRST_BLOCK, "%block")
        emit(f"ret i32 {Status.FAULT.value}")

    def _emit_round(self, local_bytes: int) -> None:
        builder = self.builder
        emit, label, lanes = builder.emit, builder.label, builder.lanes
        label("rounds")
        fresh = "[0, %block.begin], [0, %block.fresh]"
        again = ""
        if self._has_stops:
            again = ", [%opened, %round.open]" if self._is_named else ", [-1, %round.open]"
        emit(f"%release = phi i32 {fresh}{again}")
        emit("br label %warps.next")
        label("warps.next")
        emit("%warp = phi i32 [0, %rounds], [%warp.next, %warp.done]")
        for axis in _AXES:
            emit(f"%tid.{axis} = phi i32 [0, %rounds], [%next.{axis}, %warp.done]")
        if self._has_stops:
            emit("%alive = phi i1 [false, %rounds], [%alive.now, %warp.done]")
            emit("%spinning = phi i1 [false, %rounds], [%spinning.now, %warp.done]")
        emit("%wide.warp = zext i32 %warp to i64")
        if self._has_stops:
            emit("%state.at = getelementptr i32, ptr %states, i64 %wide.warp")
            emit("%state = load i32, ptr %state.at")
            emit(f"%is.done = icmp eq i32 %state, {DONE}")
            emit(f"%barrier.bit = and i32 %state, {AT_BARRIER}")
            emit("%can.go = icmp ule i32 %barrier.bit, 0")
            waits_at = "-1"
            if self._is_named:
                # Where a warp waits is the first word of its frame.
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
        emit(f"%local.offset = mul i64 %wide.warp, {lanes * local_bytes}")
        emit("%local.address = add i64 %local.start, %local.offset")
        emit(f"%frame.offset = mul i64 %wide.warp, {self._frame_bytes}")
        emit("%frame = getelementptr i8, ptr %frames, i64 %frame.offset")
        everyone = f"<{lanes} x i1> splat (i1 true)"
        if self._variant.is_whole:
            emit(f"%active = select i1 true, {everyone}, {everyone}")
        else:
            emit("%is.last = icmp eq i32 %warp, %last.warp")
            emit(f"%active = select i1 %is.last, <{lanes} x i1> %last.mask, {everyone}")
        emit(f"%stack.left = add i64 0, {local_bytes}")
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
        self._emit_next_row()
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
        write_field(builder, Field.FIRST_BLOCK, "%block")
        emit(f"ret i32 {Status.YIELDED.value}")

    def _emit_next_row(self) -> None:
        """The coordinates of the next warp's first lane, if warps are rows."""
        emit = self.builder.emit
        emit(f"%step.x = add i32 %tid.x, {self.builder.lanes}")
        emit("%ends.x = icmp uge i32 %step.x, %ntid.x")
        emit("%next.x = select i1 %ends.x, i32 0, i32 %step.x")
        emit("%step.y = add i32 %tid.y, 1")
        emit("%ends.y = icmp uge i32 %step.y, %ntid.y")
        emit("%wrapped.y = select i1 %ends.y, i32 0, i32 %step.y")
        emit("%next.y = select i1 %ends.x, i32 %wrapped.y, i32 %tid.y")
        emit("%both = and i1 %ends.x, %ends.y")
        emit("%step.z = add i32 %tid.z, 1")
        emit("%next.z = select i1 %both, i32 %step.z, i32 %tid.z")

    def _keep(self, name: str, type_: str, field: Field) -> None:
        text = read_field(self.builder, field, type_)
        zero = "i64 0"
        if type_ == "ptr":
            self.builder.emit(f"{name} = getelementptr i8, ptr {text}, {zero}")
        else:
            self.builder.emit(f"{name} = add {type_} {text}, 0")

    def _fill(self, address: str, byte: str, size: str) -> None:
        builder = self.builder
        builder.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        place = builder.name(f"inttoptr i64 {address} to ptr")
        signed = int(byte) - 256 if int(byte) > 127 else int(byte)
        builder.emit(
            f"call void @llvm.memset.p0.i64(ptr {place}, i8 {signed}, i64 {size}, i1 false)"
        )
