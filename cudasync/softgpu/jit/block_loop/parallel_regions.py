"""Cellar, jit. Writes a function for each parallel region, if all warps of a kernel wait together.

Suppose that every suspension point gathers its warp, and that no barrier has a count or a number of
its own. Then a round of the block is a loop over its warps, which run the code behind one
suspension point. So each suspension point has a segment: a function with the loop over the warps
that wait there. Between two warps there is neither a call nor a dispatch, and a function has only
the registers of its segment.

A warp's state is the code of its suspension point, and one bit: the kind of round (even or odd)
that it waits for. So a round that opens the barriers runs each warp once, wherever the warp gets
to. Rounds of warps that only keep step (`paces`) come before. They may run a warp twice, which
the program cannot observe. Where all warps are known to wait at the same barrier (`together`), no
warp's state is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.liveness import defs, uses
from cudasync.softgpu.jit.analysis.block_uniformity import is_together
from cudasync.softgpu.jit.analysis.grid_stride_loops import find_paces
from cudasync.softgpu.jit.analysis.suspension_points import parts_lanes
from cudasync.softgpu.jit.block_loop.function_merging import PARAMETERS
from cudasync.softgpu.jit.block_loop.warp_loop import (
    axes_in,
    emit_active,
    emit_next_row,
    emit_place,
    kept_in,
)
from cudasync.softgpu.jit.kernel_abi.job_record import DONE, FAILED, Field, read_field, write_field
from cudasync.softgpu.jit.transforms.suspending_functions import has_named_barriers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.jit.analysis.divergence import Divergence
    from cudasync.softgpu.jit.analysis.grid_stride_loops import Pace
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
    from cudasync.softgpu.jit.analysis.suspension_points import Stop
    from cudasync.softgpu.jit.kernel_abi.specialisation import Variant
    from cudasync.softgpu.jit.transforms.slabs import Slab
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# A round notes in a bit mask the suspension points that warps reached. Code is written once for
# each segment that reaches it.
_MOST_STOPS = 62
_MOST_TWICE = 64
# The bit beside the code in a state: whether the warp waits for even or odd rounds.
PARITY = 1 << 8


@dataclass(frozen=True, slots=True)
class Segment:
    """The code from a suspension point to the next; `code` is the point's, or 0 for the entry.

    `nodes` are in order; `entry` runs first. `loaded` are the registers that the segment loads from
    the frame. `stored` are those that it stores, by the code of the suspension point that it
    reaches; `named` are all registers that it touches. It stops before the loops of `paces`, which
    are by header, unless it begins at such a loop: `pace`. If `is_everyones`, every warp of the
    block waits at its start. It `keeps_states` only if later segments read each warp's state.
    """

    code: int
    entry: int
    nodes: tuple[int, ...]
    named: tuple[str, ...]
    loaded: tuple[str, ...]
    stored: dict[int, tuple[str, ...]]
    paces: dict[int, Pace]
    pace: Pace | None
    is_everyones: bool
    keeps_states: bool

    def runs(self, node: int) -> bool:
        """Whether this segment runs the instructions of a node in `nodes`."""
        return node not in self.paces or self.paces[node] is self.pace


def find_segments(
    flow: Flow, stops: tuple[Stop, ...], divergence: Divergence
) -> tuple[Segment, ...]:
    """The segments, by code; none if segments cannot express the kernel, or it never suspends."""
    divergent = divergence.divergent
    if (
        not flow.function.is_kernel
        or any(not stop.is_barrier or parts_lanes(flow, stop, divergent) for stop in stops)
        or has_named_barriers(flow.function)
    ):
        return ()
    barriers = {stop.position for stop in stops}
    paces = find_paces(flow, divergence, barriers, len(stops) + 1)
    if not 0 < len(stops) + len(paces) <= _MOST_STOPS:
        return ()
    by_header = {pace.header: pace for pace in paces}
    cuts = _Cuts(flow, stops, by_header, is_together=is_together(flow, barriers))
    found = [cuts.segment(0, 0, (), frozenset(), None)]
    for stop in stops:
        entry = stop.continuation
        found.append(cuts.segment(stop.code, entry, (), flow.live_in(entry), None))
    for pace in paces:
        found.append(cuts.segment(pace.code, pace.header, pace.others, pace.live, pace))
    if sum(len(each.nodes) for each in found) > len(flow.nodes) + _MOST_TWICE:
        return ()
    return tuple(found)


class _Cuts:
    """Cuts a kernel into segments at its barriers, and before the loops of its `paces`."""

    def __init__(
        self, flow: Flow, stops: tuple[Stop, ...], paces: dict[int, Pace], *, is_together: bool
    ) -> None:
        self._flow = flow
        self._stops = stops
        self._paces = paces
        self._is_together = is_together

    def segment(
        self, code: int, entry: int, others: Sequence[int], live: frozenset[str], pace: Pace | None
    ) -> Segment:
        """The code from `entry`, while lanes may wait at `others`; `live` is in the frame."""
        flow = self._flow
        body = flow.function.body
        nodes = self._reach([entry, *others], pace)
        paces = {node: self._paces[node] for node in nodes if node in self._paces}
        run = [flow.nodes[node] for node in nodes if node not in paces or paces[node] is pace]
        inside = [body[at] for node in run for at in range(node.start, node.end)]
        defined = {register.name for each in inside for register in defs(each)}
        named = defined | {register.name for each in inside for register in uses(each)}
        # Registers that the frame holds already, and that nothing in here changes, are not stored.
        kept = live - defined
        ends = {node.end - 1 for node in run}
        comes_to = {
            stop.code: flow.live_in(stop.continuation)
            for stop in self._stops
            if stop.position in ends
        }
        comes_to |= {each.code: each.live for each in paces.values()}
        # The order does not depend on names: segments may be equal except for names.
        met = [register.name for each in inside for register in (*defs(each), *uses(each))]
        order = {name: at for at, name in enumerate(dict.fromkeys(met))}

        def place(name: str) -> tuple[int, str]:
            return order.get(name, len(order)), name

        stored = {each: tuple(sorted(names - kept, key=place)) for each, names in comes_to.items()}
        named = named.union(*stored.values())
        return Segment(
            code=code,
            entry=entry,
            nodes=tuple(nodes),
            named=tuple(sorted(named, key=place)),
            loaded=tuple(sorted(live & named, key=place)),
            stored=stored,
            paces=paces,
            pace=pace,
            is_everyones=code == 0 or (self._is_together and pace is None),
            keeps_states=bool(paces) or not self._is_together,
        )

    def _reach(self, entries: list[int], pace: Pace | None) -> list[int]:
        """The nodes from `entries` to the next suspension points, in order."""
        flow = self._flow
        positions = {stop.position for stop in self._stops}
        seen: set[int] = set()
        waiting = list(entries)
        while waiting:
            index = waiting.pop()
            if index in seen or index == flow.exit:
                continue
            seen.add(index)
            if index in self._paces and self._paces[index] is not pace:
                continue
            # Lanes that need not wait also go on behind a guarded barrier.
            if flow.nodes[index].end - 1 not in positions or flow.last(index).guard is not None:
                waiting += flow.nodes[index].successors
        return sorted(seen)


def segment_head(code: int) -> str:
    """The first line of a segment's function; `%numbers` is a row of `function_merging`."""
    types = ("ptr", "i32", "i32", "i32", "i32", "i32", "ptr")
    parameters = ", ".join(f"{type_} {name}" for type_, name in zip(types, PARAMETERS, strict=True))
    return f"define internal i64 @segment.{code}({parameters}) noinline"


class SegmentText:
    """The code of a segment's function around its nodes."""

    def __init__(
        self, builder: Builder, segment: Segment, paces: Sequence[Pace], variant: Variant
    ) -> None:
        self._builder = builder
        self.segment = segment
        # All paces of the kernel: each has places in the frames.
        self.paces = paces
        self._variant = variant
        # The line at which code that depends on the warp begins.
        self._begins = 0

    def begin(self, frame_bytes: int, slab: Slab, *, has_fuel: bool) -> None:
        """Write the function from its entry to the start of a warp's own code."""
        builder, code = self._builder, self.segment.code
        emit, label = builder.emit, builder.label
        builder.allocations.append("  %codes = alloca i64")
        emit("store i64 0, ptr %codes")
        if has_fuel:
            builder.allocations.append("  %fuel = alloca i64")
            emit(f"store i64 {read_field(builder, Field.BUDGET_LEFT)}, ptr %fuel")
        emit("%resume = add i32 0, 0")
        emit("%release = add i32 0, 0")
        emit(f"%stack.left = add i64 0, {slab.size_bytes}")
        emit(f"%own.state = or i32 %now, {code}")
        emit("br label %warps.next")
        label("warps.next")
        emit("%warp = phi i32 [0, %entry], [%warp.next, %warp.done]")
        self._begins = len(builder.lines)
        emit("%wide.warp = zext i32 %warp to i64")
        emit("%state.at = getelementptr i32, ptr %states, i64 %wide.warp")
        if self.segment.is_everyones:
            emit("br label %warp.run")
        else:
            emit("%state = load i32, ptr %state.at")
            emit("%is.here = icmp eq i32 %state, %own.state")
            emit("br i1 %is.here, label %warp.run, label %warp.done")
        label("warp.run")
        emit_place(
            builder,
            slab_stride=slab.stride,
            frame_bytes=frame_bytes,
            is_whole=self._variant.is_whole,
        )
        emit_active(builder)

    def emit_return(self, code: str) -> None:
        """The warp has reached a suspension point, its end, or a fault."""
        builder = self._builder
        if int(code) == FAILED:
            builder.emit("br label %warp.failed")
            return
        keeps_states = self.segment.keeps_states
        if int(code) == DONE:
            if keeps_states:
                builder.emit(f"store i32 {DONE}, ptr %state.at")
        elif not keeps_states:
            # All warps reach the same suspension point.
            builder.emit(f"store i64 {1 << int(code)}, ptr %codes")
        else:
            builder.emit(f"store i32 {builder.name(f'or i32 %then, {code}')}, ptr %state.at")
            before = builder.name("load i64, ptr %codes")
            after = builder.name(f"or i64 {before}, {1 << int(code)}")
            builder.emit(f"store i64 {after}, ptr %codes")
        builder.emit("br label %warp.done")

    def end(self, *, has_fuel: bool) -> None:
        """End the loop and the function, which returns the points reached, or -1 for a fault."""
        builder = self._builder
        emit, label = builder.emit, builder.label
        label("warp.done")
        axes = axes_in(builder.lines)
        at = self._begins
        builder.lines[at:at] = [
            f"  %tid.{axis} = phi i32 [0, %entry], [%next.{axis}, %warp.done]" for axis in axes
        ]
        emit("%warp.next = add i32 %warp, 1")
        emit_next_row(builder, axes)
        emit("%more = icmp ult i32 %warp.next, %warps")
        emit("br i1 %more, label %warps.next, label %warps.over")
        label("warp.failed")
        emit("store i64 -1, ptr %codes")
        emit("br label %warps.over")
        label("warps.over")
        if has_fuel:
            write_field(builder, Field.BUDGET_LEFT, builder.name("load i64, ptr %fuel"))
        emit(f"ret i64 {builder.name('load i64, ptr %codes')}")
        builder.lines[:0] = kept_in(builder.lines, builder.lanes)
