"""Cellar, jit. Masks, and the way of a warp from node to node.

For each node k at which lanes may wait, the slot `%wait.k` holds the mask of those lanes. Labels:

    check.k   run node k if lanes wait there, else go on to after.k
    node.k    the instructions of node k, for the lanes that waited
    trip.k    resume a warp that was suspended before node k, see `grid_stride_loops`
    after.k   behind node k in the order: loops that end here run again while lanes wait at
              their header; else on to check.k+1
    end       no lane can go on: held lanes are saved, else the warp is done

Lanes that are all together jump straight to the next node. Invariant: at node.k, no lane waits
at a node before k, except at headers of loops that contain k; and some lane is active.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from cudasync.errors import PtxError
from cudasync.softgpu.interface.convergence_records import has_members
from cudasync.softgpu.jit.addressing.memcheck_combining import find_groups
from cudasync.softgpu.jit.analysis.cost_model import trip_cost
from cudasync.softgpu.jit.analysis.divergence import PARTING
from cudasync.softgpu.jit.analysis.induction_strides import find_strides, times
from cudasync.softgpu.jit.analysis.suspension_points import branch_back
from cudasync.softgpu.jit.checks.race_calls import note_release
from cudasync.softgpu.jit.control_flow.branch_lowering import Ways
from cudasync.softgpu.jit.control_flow.branch_primitives import (
    PATIENCE,
    branch_if_any,
    branch_if_patient,
)
from cudasync.softgpu.jit.convergence.calls import parts_at_barriers
from cudasync.softgpu.jit.kernel_abi.instruction_budget import spend
from cudasync.softgpu.jit.kernel_abi.job_record import DONE, FAILED, Field, read_field, write_field
from cudasync.softgpu.jit.synchronisation.named_barriers import emit_result
from cudasync.softgpu.jit.vector_ir.lane_masks import (
    EVERYBODY,
    NOBODY,
    load_mask,
    narrow_mask,
    new_mask,
    store_mask,
)
from cudasync.softgpu.semantics.lowering_errors import refusal

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.analysis.divergence import Divergence
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow, Loop, Node
    from cudasync.softgpu.jit.analysis.suspension_points import Stop
    from cudasync.softgpu.jit.block_loop.parallel_regions import SegmentText
    from cudasync.softgpu.jit.splitting.dispatcher import Dispatcher
    from cudasync.softgpu.jit.splitting.piece_text import PieceText
    from cudasync.softgpu.jit.splitting.pieces import Piece
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering

# Instructions that must not run without an active lane, or that are too expensive to.
_NOT_FOR_NOTHING = frozenset({"ld", "st", "ldu", "atom", "red", "trap", "call", "nanosleep"})


class Control:
    """Emits the body of a warp function."""

    def __init__(
        self,
        lowering: Lowering,
        flow: Flow,
        divergence: Divergence,
        stops: tuple[Stop, ...],
        emitters: dict[str, Emitter],
        around: SegmentText | PieceText | None = None,
        like: Control | None = None,
        *,
        is_split: bool = False,
    ) -> None:
        self._lowering = lowering
        self._builder = lowering.builder
        self._flow = flow
        self._divergence = divergence
        self._emitters = emitters
        known = like._ways if like is not None else None
        self._ways: Ways = Ways(lowering, flow, divergence, stops, around, known, is_split=is_split)
        self._segment = around.segment if around is not None else None
        self._nodes = flow.nodes
        if self._segment is not None:
            self._nodes = tuple(flow.nodes[index] for index in self._segment.nodes)
            pace = self._segment.pace
            lowering.has_tiles = pace is None
            if pace is not None:
                (loop,) = (each for each in flow.loops if each.header == pace.header)
                strides = find_strides(flow, loop)
                lowering.strides = {at: times(each, pace.trips) for at, each in strides.items()}
        self._ending = self._ends()
        if lowering.settings.convergence and lowering.is_kernel:
            barriers = {stop.position for stop in stops if stop.is_barrier}
            lowering.tells_arrivals = parts_at_barriers(flow, barriers)
            meets = any(map(has_members, lowering.program.instructions))
            lowering.tells_ends = lowering.tells_arrivals or meets

    @property
    def frame_bytes(self) -> int:
        return self._ways.frame.size

    @property
    def numbered(self) -> dict[int, int]:
        return self._ways.frame.numbered

    @property
    def is_named(self) -> bool:
        return self._ways.is_named

    def emit(self) -> None:
        """Emit everything between the slots of registers and the closing brace."""
        builder = self._builder
        for index in sorted(self._ways.slots):
            new_mask(builder, f"%wait.{index}", is_vector=index in self._ways.blending)
        if self._segment is not None:
            self._ways.frame.load_for(self._segment)
            pace = self._segment.pace
            if pace is not None:
                if pace.trips > 1:
                    builder.allocations.append("  %trips = alloca i32")
                    builder.emit(f"store i32 {pace.trips}, ptr %trips")
                builder.emit(f"br label %trip.{self._segment.entry}")
            else:
                self._pass_barrier(self._segment.code)
                self._enter_together(self._segment.entry)
            self._emit_nodes()
            return
        if self._flow.loops:
            builder.allocations.append("  %fuel = alloca i64")
            builder.emit(f"store i64 {read_field(builder, Field.BUDGET_LEFT)}, ptr %fuel")
        if self._ways.waiting:
            builder.allocations.append("  %patience = alloca i32")
            builder.emit(f"store i32 {PATIENCE}, ptr %patience")
        if not self._flow.nodes:
            builder.emit("br label %end")
        else:
            if 0 in self._ways.slots:
                store_mask(builder, "%active", "%wait.0")
            self._ways.frame.emit_entry("node.0")
            self._ways.frame.emit_resumes(self._enter_together, self._finish, "check.0")
        self._emit_nodes()

    def emit_piece(self, piece: Piece) -> None:
        """Emit the nodes of a piece; jump targets outside the piece have no label here."""
        self._name_vector_masks()
        for node in self._flow.nodes[piece.first : piece.last + 1]:
            is_last = node.index + 1 == len(self._flow.nodes)
            self._emit_node(node, "end" if is_last else f"check.{node.index + 1}")

    def emit_dispatcher(self, dispatcher: Dispatcher) -> None:
        """Emit the code before the calls of pieces, and the exits of the function behind them."""
        builder = self._builder
        self._name_vector_masks()
        dispatcher.begin(has_fuel=bool(self._flow.loops))
        builder.emit(f"store i32 {PATIENCE}, ptr %patience")
        self._ways.frame.emit_entry("start")
        builder.label("start")
        dispatcher.begin_anew()
        self._enter_together(0)
        self._ways.frame.emit_resumes(self._enter_together, self._finish, "check.0")
        self._emit_end()
        builder.label("stopped")
        self._ways.emit_return(builder.name("load i32, ptr %code"))

    def _name_vector_masks(self) -> None:
        self._builder.vector_masks.update(f"%wait.{index}" for index in self._ways.blending)

    def _pass_barrier(self, code: int) -> None:
        """Begin a segment behind this barrier; a segment may also begin at the kernel's entry."""
        for stop in self._ways.barriers.values():
            if stop.code == code:
                self._release(stop, "%active")

    def _emit_nodes(self) -> None:
        behind = [f"check.{node.index}" for node in self._nodes[1:]]
        for node, onward in zip(self._nodes, [*behind, "end"], strict=False):
            self._emit_node(node, onward)
        self._emit_end()

    def _emit_end(self) -> None:
        builder = self._builder
        builder.label("end")
        if self._ways.held:
            self._ways.frame.emit_held(self._ways.emit_return)
        self._ways.emit_return(str(DONE))
        builder.label("fault")
        write_field(builder, Field.FAULT_WARP, builder.name("zext i32 %warp to i64"))
        self._ways.emit_return(str(FAILED))

    # One node.

    def _emit_node(self, node: Node, onward: str) -> None:
        builder, lowering, index = self._builder, self._lowering, node.index
        builder.label(f"check.{index}")
        if index in self._ways.slots:
            waiting = load_mask(builder, f"%wait.{index}")
            branch_if_any(self._builder, waiting, f"node.{index}", f"after.{index}")
        else:
            builder.emit(f"br label %after.{index}")
        builder.label(f"node.{index}")
        pace = self._segment.paces.get(index) if self._segment is not None else None
        if self._segment is not None and pace is not None:
            if pace.trips > 1 and self._segment.runs(index):
                self._emit_more_trips(index)
            self._ways.frame.emit_pace(pace, self._segment, self._ways.emit_return)
            if not self._segment.runs(index):
                self._emit_after(node, onward)
                return
            builder.label(f"trip.{index}")
        is_divergent = index in self._divergence.divergent
        lowering.mask = "%active"
        if is_divergent:
            lowering.mask = load_mask(builder, f"%wait.{index}")
        elif lowering.variant.is_whole:
            lowering.mask = EVERYBODY
        lowering.is_mask_full = not is_divergent and lowering.variant.is_whole
        lowering.has_everybody = not is_divergent and lowering.is_kernel
        lowering.must_blend = lambda name: self._divergence.blends(name, index)
        if index in self._ways.slots:
            store_mask(builder, NOBODY, f"%wait.{index}")
        lowering.position = node.start
        self._ways.emit_meeting(node)
        body = self._flow.function.body
        lowering.groups = find_groups(body, node.start, node.end)
        ends_in_control = self._is_control(body[node.end - 1], node.end - 1)
        for position in range(node.start, node.end - ends_in_control):
            lowering.position = position
            try:
                self._emit_instruction(body[position])
            except PtxError:
                raise
            except Exception as error:
                file = lowering.program.module.file
                raise refusal(error, body[position], file) from error
        lowering.position = node.end - 1
        if ends_in_control:
            if lowering.undefined is not None:
                lowering.undefined.begin(body[node.end - 1])
            self._ways.leave(node, body[node.end - 1])
        else:
            self._ways.jump(node, self._ways.following(node))
        self._emit_after(node, onward)

    def _emit_more_trips(self, header: int) -> None:
        """Go on with the next trip, unless this was the last trip of the turn."""
        builder, stop = self._builder, self._builder.fresh("turn.over")
        left = builder.name(f"sub i32 {builder.name('load i32, ptr %trips')}, 1")
        builder.emit(f"store i32 {left}, ptr %trips")
        is_over = builder.name(f"icmp eq i32 {left}, 0")
        builder.emit(f"br i1 {is_over}, label %{stop}, label %trip.{header}")
        builder.label(stop)

    def _is_control(self, instruction: Instruction, position: int) -> bool:
        return instruction.opcode in PARTING or position in self._ways.barriers

    def _emit_instruction(self, instruction: Instruction) -> None:
        emitter = self._emitter_of(instruction)
        if instruction.guard is None:
            emitter(self._lowering, instruction)
            return
        builder, lowering = self._builder, self._lowering
        condition = self._ways.guard(instruction)
        skip = builder.fresh("skip")
        do = builder.fresh("do")
        if condition.is_uniform:
            builder.emit(f"br i1 {condition.text}, label %{do}, label %{skip}")
            builder.label(do)
            emitter(lowering, instruction)
            builder.emit(f"br label %{skip}")
            builder.label(skip)
            return
        mask, is_full, must_blend = lowering.mask, lowering.is_mask_full, lowering.must_blend
        has_everybody, lowering.has_everybody = lowering.has_everybody, False
        lowering.mask = narrow_mask(builder, mask, condition.text)
        lowering.is_mask_full = False
        lowering.must_blend = lambda _name: True
        if instruction.opcode in _NOT_FOR_NOTHING:
            branch_if_any(self._builder, lowering.mask, do, skip)
            builder.label(do)
            emitter(lowering, instruction)
            builder.emit(f"br label %{skip}")
            builder.label(skip)
        else:
            emitter(lowering, instruction)
        lowering.mask, lowering.is_mask_full, lowering.must_blend = mask, is_full, must_blend
        lowering.has_everybody = has_everybody

    def _emitter_of(self, instruction: Instruction) -> Emitter:
        emitter = self._emitters[instruction.opcode]
        undefined = self._lowering.undefined
        if undefined is None:
            return emitter

        def followed(lowering: Lowering, instruction: Instruction) -> None:
            undefined.begin(instruction)
            emitter(lowering, instruction)
            undefined.end(instruction)

        return followed

    def _release(self, stop: Stop, mask: str) -> None:
        """Lanes go on behind a barrier: tell the race check."""
        if self._lowering.settings.races:
            names = self._ways.frame.number_and_count(stop, self._ways.at(stop))
            note_release(self._lowering, names, mask)

    def _finish(self, stop: Stop, mask: str) -> None:
        """A suspension is over for the lanes of `mask`: write the barrier's result, if any."""
        if not stop.is_barrier:
            return
        builder, lowering = self._builder, self._lowering
        self._release(stop, mask)
        is_held = stop in self._ways.held
        lowering.mask, lowering.must_blend = mask, lambda _name: is_held
        lowering.position = stop.position
        if not is_held:
            emit_result(lowering, self._ways.at(stop))
            return
        # Lanes that were held at another barrier with this number keep their result. A result that
        # all lanes share is written whole, whatever the mask.
        do, skip = builder.fresh("released"), builder.fresh("finished")
        branch_if_any(builder, mask, do, skip)
        builder.label(do)
        emit_result(lowering, self._ways.at(stop))
        builder.emit(f"br label %{skip}")
        builder.label(skip)

    def _enter_together(self, target: int) -> None:
        """Go to `target` with all lanes."""
        if target == self._flow.exit:
            self._builder.emit("br label %end")
            return
        if target in self._ways.slots:
            store_mask(self._builder, "%active", f"%wait.{target}")
        self._builder.emit(f"br label %node.{target}")

    def _emit_after(self, node: Node, onward: str) -> None:
        builder, index = self._builder, node.index
        builder.label(f"after.{index}")
        for loop in self._ending.get(index, ()):
            # A header that this function does not run sends no lanes here.
            if loop.header in self._ways.slots and (index > loop.header or self._runs(index)):
                self._emit_again(loop)
        builder.emit(f"br label %{onward}")

    def _runs(self, node: int) -> bool:
        return self._segment is None or self._segment.runs(node)

    def _ends(self) -> dict[int, list[Loop]]:
        """For the last node of each loop that is emitted here: the loops that may run again
        behind it, inner loops first."""
        written = [node.index for node in self._nodes]
        found: dict[int, list[Loop]] = {}
        for loop in sorted(self._flow.loops, key=lambda each: -each.header):
            behind = bisect_right(written, loop.last)
            if behind and written[behind - 1] in loop:
                found.setdefault(written[behind - 1], []).append(loop)
        return found

    def _emit_again(self, loop: Loop) -> None:
        """Run the loop again if lanes wait at its header."""
        builder = self._builder
        waiting = load_mask(builder, f"%wait.{loop.header}")
        again, onward = builder.fresh("again"), builder.fresh("onward")
        branch_if_any(self._builder, waiting, again, onward)
        builder.label(again)
        paid = builder.fresh("paid")
        position = self._lowering.number(branch_back(self._flow, loop))
        spend(builder, trip_cost(self._flow, loop), position, waiting, paid)
        builder.label(paid)
        stop = self._ways.waiting.get(loop.header)
        if stop is not None:
            on, hold = builder.fresh("on"), builder.fresh("hold")
            branch_if_patient(builder, stop, on, hold)
            builder.label(hold)
            if stop in self._ways.held:
                self._ways.frame.emit_hold(stop, waiting)
                store_mask(builder, NOBODY, f"%wait.{loop.header}")
                builder.emit(f"br label %{onward}")
            else:
                # Lanes never diverge here: if one waits, all do.
                self._ways.frame.emit_gathered(stop, self._ways.emit_return, self._segment)
            builder.label(on)
        self._ways.emit_round(loop)
        builder.label(onward)
