"""Cellar, jit. Lowers the end of a node: branches, barriers and returns.

Lanes that diverge wait at their target nodes, and control searches for waiting lanes from
`after.node` on. Lanes that stay together jump directly, if no lane can be waiting at a node that
the search would visit first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Label
from cudasync.ptx.liveness import defs
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.analysis.cost_model import trip_cost
from cudasync.softgpu.jit.analysis.divergence import parts
from cudasync.softgpu.jit.analysis.suspension_points import parts_lanes
from cudasync.softgpu.jit.checks.race_calls import note_barrier
from cudasync.softgpu.jit.control_flow.branch_primitives import (
    branch_if_any,
    branch_if_patient,
    note_leaving,
)
from cudasync.softgpu.jit.control_flow.spill_frame import Frame
from cudasync.softgpu.jit.convergence.calls import note_arrival, note_end
from cudasync.softgpu.jit.kernel_abi.barrier_operands import fixed_number
from cudasync.softgpu.jit.kernel_abi.instruction_budget import spend
from cudasync.softgpu.jit.kernel_abi.job_record import Field, write_field
from cudasync.softgpu.jit.splitting.piece_text import PieceText
from cudasync.softgpu.jit.synchronisation.named_barriers import emit_bring
from cudasync.softgpu.jit.transforms.suspending_functions import has_named_barriers
from cudasync.softgpu.jit.vector_ir.lane_masks import (
    NOBODY,
    load_mask,
    mask_bits,
    merge_mask,
    split_mask,
    store_mask,
)
from cudasync.softgpu.jit.vector_ir.register_allocas import clear, spent
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.analysis.divergence import Divergence
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow, Loop, Node
    from cudasync.softgpu.jit.analysis.suspension_points import Stop
    from cudasync.softgpu.jit.block_loop.parallel_regions import SegmentText
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

# Warp-wide instructions with the mask of participating lanes as last operand.
MASKED = frozenset({"shfl", "vote", "match", "redux", "elect"})


class Ways:
    """The ways out of every node of a function, and the masks of waiting and held lanes."""

    held: list[Stop]
    is_named: bool
    # The nodes with a slot for waiting lanes: in the whole function, and in this segment. Last,
    # the nodes with a slot in which some register is blended.
    all_slots: frozenset[int]
    slots: set[int]
    blending: set[int]
    frame: Frame

    def __init__(
        self,
        lowering: Lowering,
        flow: Flow,
        divergence: Divergence,
        stops: tuple[Stop, ...],
        around: SegmentText | PieceText | None = None,
        like: Ways | None = None,
        *,
        is_split: bool = False,
    ) -> None:
        """`like` is the `Ways` of another segment of the same kernel, or of another piece of the
        same function; its analysis results are reused."""
        self._lowering = lowering
        self._around = around
        self._piece = around.piece if isinstance(around, PieceText) else None
        self._segment = around.segment if around is not None else None
        self._builder = lowering.builder
        self._flow = flow
        self._divergence = divergence
        self._loop_at = {loop.header: loop for loop in flow.loops}
        self.barriers = {stop.position: stop for stop in stops if stop.is_barrier}
        self.waiting = {stop.continuation: stop for stop in stops if stop.loop is not None}
        self.meetings = {stop.continuation: stop for stop in stops if stop.is_meeting}
        # For each loop header, the registers that `emit_round` clears.
        self._spent: dict[int, frozenset[str]] = {} if like is None else like._spent
        lowering.has_patience = bool(self.waiting)
        lowering.has_fuel = bool(flow.loops)
        if like is not None:
            self.held, self.is_named, self.blending = like.held, like.is_named, like.blending
            numbers = like.frame.numbers if is_split else {}
            self.frame = Frame(
                lowering,
                flow,
                stops,
                self.held,
                numbers,
                (),
                like.all_slots,
                like.frame,
                is_split=is_split,
            )
            self.all_slots = like.all_slots
            self.slots = set(self.all_slots)
            if self._segment is not None:
                self.slots.intersection_update(self._segment.nodes)
            return
        self.held = [stop for stop in stops if parts_lanes(flow, stop, divergence.divergent)]
        self.is_named = has_named_barriers(lowering.function)
        numbers = {}
        if self.is_named:
            numbers = {stop.code: fixed_number(self.at(stop)) for stop in stops if stop.is_barrier}
        # The nodes that have a slot for waiting lanes.
        self.slots = set(divergence.divergent)
        for node in flow.nodes:
            if node.index in divergence.divergent or parts(flow.last(node.index), lowering.shapes):
                self.slots.update(node.successors)
        self.slots.discard(flow.exit)
        paces = around.paces if around is not None else ()
        self.all_slots = frozenset(self.slots)
        self.frame = Frame(
            lowering, flow, stops, self.held, numbers, paces, self.all_slots, is_split=is_split
        )
        # The nodes with a slot in which some register is blended.
        self.blending = {index for index in self.slots if self._blends(flow.nodes[index])}
        if self._segment is not None:
            self.slots.intersection_update(self._segment.nodes)

    def _blends(self, node: Node) -> bool:
        body, shapes = self._flow.function.body, self._lowering.shapes
        return any(
            shapes[register.name].is_varying and self._divergence.blends(register.name, node.index)
            for position in range(node.start, node.end)
            for register in defs(body[position])
            if register.name in shapes
        )

    def at(self, stop: Stop) -> Instruction:
        """The instruction of a suspension point."""
        return self._flow.function.body[stop.position]

    def leave(self, node: Node, instruction: Instruction) -> None:
        """Lower the last instruction of a node."""
        builder = self._builder
        if instruction.opcode == "brx":
            self._leave_by_table(node, instruction)
            return
        if instruction.opcode == "bra":
            label = instruction.operands[-1]
            assert isinstance(label, Label)
            target = self._node_at(label.name)
        else:
            target = self._flow.exit
        stop = self.barriers.get(node.end - 1)
        if instruction.guard is None:
            if stop is not None:
                self._arrive(node, stop)
            else:
                self.jump(node, target)
            return
        condition = self.guard(instruction)
        following = self.following(node)
        if condition.is_uniform:
            taken, other = builder.fresh("taken"), builder.fresh("other")
            builder.emit(f"br i1 {condition.text}, label %{taken}, label %{other}")
            builder.label(taken)
            if stop is not None:
                self._arrive(node, stop)
            else:
                self.jump(node, target)
            builder.label(other)
            self.jump(node, following)
            return
        if stop is not None:
            self._lowering.refuse(
                instruction, "a barrier for only some lanes of a warp is not implemented"
            )
        mask = self._lowering.mask
        taken, other = split_mask(builder, mask, condition.text)
        self._wait_at(node, target, taken)
        self._wait_at(node, following, other)
        builder.emit(f"br label %after.{node.index}")

    def _leave_by_table(self, node: Node, instruction: Instruction) -> None:
        """brx.idx: branch to one of several labels; an index out of range goes to the last."""
        builder = self._builder
        table = instruction.operands[-1]
        assert isinstance(table, Label)
        if instruction.guard is not None:
            self._lowering.refuse(instruction)
        targets = [self._node_at(name) for name in self._flow.function.tables[table.name]]
        index = self._lowering.read(instruction.operands[0], ScalarType.U32)
        if index.is_uniform:
            ways = [builder.fresh("way") for _ in targets]
            cases = " ".join(f"i32 {k}, label %{way}" for k, way in enumerate(ways[:-1]))
            builder.emit(f"switch i32 {index.text}, label %{ways[-1]} [{cases}]")
            for way, target in zip(ways, targets, strict=True):
                builder.label(way)
                self.jump(node, target)
            return
        left = self._lowering.mask
        for k, target in enumerate(targets[:-1]):
            here = builder.vector(builder.compare("icmp eq", index, integer("i32", k)))
            goes, left = split_mask(builder, left, here)
            self._wait_at(node, target, goes)
        self._wait_at(node, targets[-1], left)
        builder.emit(f"br label %after.{node.index}")

    def _node_at(self, label: str) -> int:
        return self._flow.starting_at(self._flow.function.labels[label])

    def _wait_at(self, node: Node, target: int, mask: str) -> None:
        if self._ends_wait(node, target):
            note_leaving(self._builder, mask)
        if self._ends(target):
            note_end(self._lowering, mask)
        if target == self._flow.exit:
            return
        merge_mask(self._builder, mask, f"%wait.{target}")

    def jump(self, node: Node, target: int) -> None:
        """All lanes of the mask go to `target`."""
        builder, mask = self._builder, self._lowering.mask
        divergent = self._divergence.divergent
        if self._ends_wait(node, target):
            note_leaving(builder, mask)
        if self._ends(target):
            note_end(self._lowering, mask)
        if target == self._flow.exit:
            where = f"after.{node.index}" if node.index in divergent else "end"
            builder.emit(f"br label %{where}")
            return
        if not self._is_direct(node.index, target):
            self._wait_at(node, target, mask)
            builder.emit(f"br label %after.{node.index}")
            return
        if target in self._divergence.pending.get(node.index, ()):
            self._wait_at(node, target, mask)
        elif target in self.slots:
            store_mask(builder, mask, f"%wait.{target}")
        if target > node.index:
            builder.emit(f"br label %node.{target}")
            return
        # The budget is spent first, so that a warp that loses patience at once pays, too.
        cost, paid = trip_cost(self._flow, self._loop_at[target]), builder.fresh("paid")
        spend(builder, cost, self._lowering.number(), mask, paid)
        builder.label(paid)
        stop = self.waiting.get(target)
        if stop is not None:
            on, rest = builder.fresh("on"), builder.fresh("rest")
            branch_if_patient(builder, stop, on, rest)
            builder.label(rest)
            self.frame.emit_gathered(stop, self.emit_return, self._segment)
            builder.label(on)
        self.emit_round(self._loop_at[target])

    def emit_round(self, loop: Loop) -> None:
        """Go to the header of a loop: all its lanes wait there, or have left it for good."""
        if not self._flow.is_reducible:
            # Lanes may have entered the loop elsewhere, and wait there.
            self._builder.emit(f"br label %node.{loop.header}")
            return
        if self._piece is not None and not self._piece.holds(loop):
            # Registers shared with other pieces are in memory, where no phi carries them round.
            self._builder.emit(f"br label %node.{loop.header}")
            return
        names = self._spent.get(loop.header)
        if names is None:
            names = spent(self._flow, self._divergence, self.held, loop)
            self._spent[loop.header] = names
        if self._segment is not None:
            names = names.intersection(self._segment.named)
        clear(self._lowering, sorted(names))
        pending = self._divergence.pending.get(loop.header, frozenset())
        for node in sorted(self.slots):
            if node in loop and node != loop.header and node not in pending:
                store_mask(self._builder, NOBODY, f"%wait.{node}")
        self._builder.emit(f"br label %node.{loop.header}")

    def _is_direct(self, node: int, target: int) -> bool:
        """Whether no lane can be waiting where `after.node` would search before `target`."""
        pending = self._divergence.pending.get(node, frozenset())
        loop = self._loop_at.get(target)
        if target <= node:
            if loop is None or target in self._held_headers():
                return False
            passed = set(range(node + 1, loop.last + 1))
            passed |= {x.header for x in self._flow.loops if node <= x.last < loop.last}
            passed |= {
                x.header for x in self._flow.loops if x.last == loop.last and x.header > target
            }
        else:
            passed = set(range(node + 1, target))
            passed |= {x.header for x in self._flow.loops if node <= x.last < target}
        return passed.isdisjoint(pending)

    def _ends(self, target: int) -> bool:
        """Whether lanes that go to `target` end without doing anything before."""
        if target == self._flow.exit:
            return True
        node, last = self._flow.nodes[target], self._flow.last(target)
        is_bare = node.end - node.start == 1 and last.guard is None
        return is_bare and last.opcode in ("ret", "exit")

    def _ends_wait(self, node: Node, target: int) -> bool:
        """Whether lanes that go to `target` thereby leave a loop that waits for memory."""
        return any(
            stop.loop is not None and node.index in stop.loop and target not in stop.loop
            for stop in self.waiting.values()
        )

    def emit_meeting(self, node: Node) -> None:
        """Hold the lanes that must wait for others here; the rest go on, if there are any."""
        stop = self.meetings.get(node.index)
        if stop is None:
            return
        builder, lowering = self._builder, self._lowering
        behind = "0"
        for other in self.held:
            if other.loop is not None:
                bits = mask_bits(builder, load_mask(builder, f"%held.{other.code}"))
                behind = builder.name(f"or i{builder.lanes} {behind}, {bits}")
        members = self._members(self.at(stop))
        absent = builder.extend(uniform(f"i{builder.lanes}", behind), "i32", is_signed=False)
        awaited = builder.binary("and", members, absent)
        waits = builder.compare("icmp ne", awaited, integer("i32", 0))
        held, lowering.mask = split_mask(builder, lowering.mask, builder.vector(waits))
        self.frame.emit_hold(stop, held)
        goes = builder.fresh("meets")
        branch_if_any(builder, lowering.mask, goes, f"after.{node.index}")
        builder.label(goes)

    def _members(self, instruction: Instruction) -> Value:
        """For each lane, the lanes that it must meet."""
        is_barrier = instruction.opcode in ("bar", "barrier")
        if is_barrier or instruction.opcode in MASKED:
            return self._lowering.read(instruction.operands[-1], ScalarType.U32)
        return integer("i32", -1)

    def _held_headers(self) -> set[int]:
        return {stop.continuation for stop in self.held if stop.loop is not None}

    def _arrive(self, node: Node, stop: Stop) -> None:
        """Lower the arrival of all lanes of the mask at a barrier."""
        held = "0"
        if stop in self.held and stop.code in self.frame.numbered:
            held = mask_bits(self._builder, load_mask(self._builder, f"%held.{stop.code}"))
        self.frame.emit_number(stop, self.at(stop), held)
        emit_bring(self._lowering, self.at(stop))
        note_barrier(self._lowering, self.at(stop), self._lowering.mask)
        note_arrival(self._lowering, self.at(stop))
        if stop in self.held:
            self.frame.emit_hold(stop, self._lowering.mask)
            self._builder.emit(f"br label %after.{node.index}")
        else:
            self.frame.emit_gathered(stop, self.emit_return, self._segment)

    def guard(self, instruction: Instruction) -> Value:
        """The guard as a predicate that is true where the instruction takes effect."""
        guard = instruction.guard
        assert guard is not None
        value = self._lowering.load_register(guard.register)
        return self._lowering.negate(value) if guard.negated else value

    def following(self, node: Node) -> int:
        """The target of lanes that do not branch."""
        return node.successors[0] if node.successors else self._flow.exit

    def emit_return(self, code: str) -> None:
        """Leave the warp function, and hand back the rest of the budget."""
        if self._around is not None:
            self._around.emit_return(code)
            return
        if self._flow.loops:
            builder = self._builder
            write_field(builder, Field.BUDGET_LEFT, builder.name("load i64, ptr %fuel"))
        self._builder.emit(f"ret i32 {code}")
