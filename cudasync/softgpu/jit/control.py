"""Cellar, jit. Masks, and how a warp gets from node to node.

For each node k that lanes may wait at, the slot `%wait.k` holds the mask of those lanes. Labels:

    check.k   run node k if lanes wait there, else go on to after.k
    node.k    the instructions of node k, for the lanes that waited
    after.k   behind node k in the order: loops that end here run again while lanes wait at
              their header; else on to check.k+1
    end       no lane can go on: held ones are saved, else the warp is done

Lanes that are all together jump straight to the next node. Invariant: at node.k, no lane waits
at a node before k, except at headers of loops that contain k; and some lane is active.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Label
from cudasync.softgpu.jit.barriers import emit_bring, emit_result, number_and_count
from cudasync.softgpu.jit.branches import PATIENCE, branch_if_any, branch_if_patient, spend
from cudasync.softgpu.jit.divergence import PARTING
from cudasync.softgpu.jit.frames import DONE, FAILED, Frame
from cudasync.softgpu.jit.job import Field, read_field, write_field
from cudasync.softgpu.jit.stops import has_named_barriers

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.divergence import Divergence
    from cudasync.softgpu.jit.flow import Flow, Loop, Node
    from cudasync.softgpu.jit.lowering import Emitter, Lowering
    from cudasync.softgpu.jit.stops import Stop
    from cudasync.softgpu.jit.values import Value

# Instructions that must not run with no lane active, or cost too much to.
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
    ) -> None:
        self._lowering = lowering
        self._builder = lowering.builder
        self._flow = flow
        self._divergence = divergence
        self._emitters = emitters
        self._mask_type = self._builder.vector_type("i1")
        self._loop_at = {loop.header: loop for loop in flow.loops}
        self._barriers = {stop.position: stop for stop in stops if stop.is_barrier}
        self._waiting = {stop.continuation: stop for stop in stops if not stop.is_barrier}
        lowering.has_patience = bool(self._waiting)
        gathered = {stop.code for stop in stops if not self._is_held(stop)}
        self._held = [stop for stop in stops if stop.code not in gathered]
        self.is_named = has_named_barriers(lowering.kernel)
        numbers = {}
        if self.is_named:
            numbers = {
                stop.code: number_and_count(lowering, self._at(stop))[0]
                for stop in stops
                if stop.is_barrier
            }
        self._frame = Frame(lowering, flow, stops, self._held, numbers)
        # The nodes that have a slot for waiting lanes.
        self._slots = set(divergence.divergent)
        for node in flow.nodes:
            if node.index in divergence.divergent or self._parts(node):
                self._slots.update(node.successors)
        self._slots.discard(flow.exit)

    @property
    def frame_bytes(self) -> int:
        return self._frame.size

    def _at(self, stop: Stop) -> Instruction:
        return self._flow.function.body[stop.position]

    def _is_held(self, stop: Stop) -> bool:
        divergent = self._divergence.divergent
        if stop.loop is not None:
            return any(node in divergent for node in range(stop.loop.header, stop.loop.last + 1))
        return any(
            node.end - 1 == stop.position and node.index in divergent for node in self._flow.nodes
        )

    def _parts(self, node: Node) -> bool:
        last = self._flow.last(node.index)
        return (
            last.guard is not None
            and last.opcode in PARTING
            and not self._lowering.shapes[last.guard.register.name].is_uniform
        )

    def emit(self) -> None:
        """Everything between the slots of registers and the closing brace."""
        builder = self._builder
        for index in sorted(self._slots):
            builder.allocations.append(f"  %wait.{index} = alloca {self._mask_type}")
            builder.emit(f"store {self._mask_type} zeroinitializer, ptr %wait.{index}")
        if self._flow.loops:
            builder.allocations.append("  %fuel = alloca i64")
            builder.emit(f"store i64 {read_field(builder, Field.BUDGET_LEFT)}, ptr %fuel")
        if self._waiting:
            builder.allocations.append("  %patience = alloca i32")
            builder.emit(f"store i32 {PATIENCE}, ptr %patience")
        if not self._flow.nodes:
            builder.emit("br label %end")
        else:
            if 0 in self._slots:
                builder.emit(f"store {self._mask_type} %active, ptr %wait.0")
            self._frame.emit_entry("node.0")
            self._frame.emit_resumes(self._enter_together, self._finish, "check.0")
            for node in self._flow.nodes:
                self._emit_node(node)
        self._emit_end()

    def _emit_end(self) -> None:
        builder = self._builder
        builder.label("end")
        if self._held:
            self._frame.emit_held(self._emit_return)
        self._emit_return(str(DONE))
        builder.label("fault")
        self._emit_return(str(FAILED))

    def _emit_return(self, code: str) -> None:
        if self._flow.loops:
            builder = self._builder
            write_field(builder, Field.BUDGET_LEFT, builder.name("load i64, ptr %fuel"))
        self._builder.emit(f"ret i32 {code}")

    # One node.

    def _emit_node(self, node: Node) -> None:
        builder, lowering, index = self._builder, self._lowering, node.index
        builder.label(f"check.{index}")
        if index in self._slots:
            waiting = builder.name(f"load {self._mask_type}, ptr %wait.{index}")
            branch_if_any(self._builder, waiting, f"node.{index}", f"after.{index}")
        else:
            builder.emit(f"br label %after.{index}")
        builder.label(f"node.{index}")
        is_divergent = index in self._divergence.divergent
        lowering.mask = "%active"
        if is_divergent:
            lowering.mask = builder.name(f"load {self._mask_type}, ptr %wait.{index}")
        elif lowering.variant.is_whole:
            lowering.mask = "splat (i1 true)"
        lowering.is_mask_full = not is_divergent and lowering.variant.is_whole
        lowering.must_blend = lambda name: self._divergence.blends(name, index)
        if index in self._slots:
            builder.emit(f"store {self._mask_type} zeroinitializer, ptr %wait.{index}")
        body = self._flow.function.body
        ends_in_control = self._is_control(body[node.end - 1], node.end - 1)
        for position in range(node.start, node.end - ends_in_control):
            lowering.position = position
            self._emit_instruction(body[position])
        lowering.position = node.end - 1
        if ends_in_control:
            self._leave(node, body[node.end - 1])
        else:
            self._jump(node, self._following(node))
        self._emit_after(node)

    def _following(self, node: Node) -> int:
        return node.successors[0] if node.successors else self._flow.exit

    def _is_control(self, instruction: Instruction, position: int) -> bool:
        return instruction.opcode in PARTING or position in self._barriers

    def _emit_instruction(self, instruction: Instruction) -> None:
        emitter = self._emitters[instruction.opcode]
        if instruction.guard is None:
            emitter(self._lowering, instruction)
            return
        builder, lowering = self._builder, self._lowering
        condition = self._guard(instruction)
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
        lowering.mask = builder.name(f"and {self._mask_type} {mask}, {condition.text}")
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

    def _guard(self, instruction: Instruction) -> Value:
        """The guard as a predicate that is true where the instruction takes effect."""
        guard = instruction.guard
        assert guard is not None
        value = self._lowering.load_register(guard.register)
        return self._lowering.negate(value) if guard.negated else value

    # Leaving a node.

    def _leave(self, node: Node, instruction: Instruction) -> None:
        builder = self._builder
        if instruction.opcode == "bra":
            label = instruction.operands[-1]
            assert isinstance(label, Label)
            start = self._flow.function.labels[label.name]
            target = self._node_at(start)
        else:
            target = self._flow.exit
        stop = self._barriers.get(node.end - 1)
        if instruction.guard is None:
            if stop is not None:
                self._arrive(node, stop)
            else:
                self._jump(node, target)
            return
        condition = self._guard(instruction)
        following = self._following(node)
        if condition.is_uniform:
            taken, other = builder.fresh("taken"), builder.fresh("other")
            builder.emit(f"br i1 {condition.text}, label %{taken}, label %{other}")
            builder.label(taken)
            if stop is not None:
                self._arrive(node, stop)
            else:
                self._jump(node, target)
            builder.label(other)
            self._jump(node, following)
            return
        if stop is not None:
            self._lowering.refuse(instruction, "a barrier for some lanes of a warp only")
        mask = self._lowering.mask
        taken = builder.name(f"and {self._mask_type} {mask}, {condition.text}")
        inverse = builder.name(f"xor {self._mask_type} {condition.text}, splat (i1 true)")
        other = builder.name(f"and {self._mask_type} {mask}, {inverse}")
        self._wait_at(target, taken)
        self._wait_at(following, other)
        builder.emit(f"br label %after.{node.index}")

    def _node_at(self, start: int) -> int:
        for node in self._flow.nodes:
            if node.start == start:
                return node.index
        return self._flow.exit

    def _wait_at(self, target: int, mask: str) -> None:
        if target == self._flow.exit:
            return
        builder = self._builder
        before = builder.name(f"load {self._mask_type}, ptr %wait.{target}")
        after = builder.name(f"or {self._mask_type} {before}, {mask}")
        builder.emit(f"store {self._mask_type} {after}, ptr %wait.{target}")

    def _jump(self, node: Node, target: int) -> None:
        """All lanes of the mask go to `target`."""
        builder, mask = self._builder, self._lowering.mask
        divergent = self._divergence.divergent
        if target == self._flow.exit:
            where = f"after.{node.index}" if node.index in divergent else "end"
            builder.emit(f"br label %{where}")
            return
        if not self._is_direct(node.index, target):
            self._wait_at(target, mask)
            builder.emit(f"br label %after.{node.index}")
            return
        if target in self._divergence.pending.get(node.index, ()):
            self._wait_at(target, mask)
        elif target in self._slots:
            builder.emit(f"store {self._mask_type} {mask}, ptr %wait.{target}")
        if target > node.index:
            builder.emit(f"br label %node.{target}")
            return
        stop = self._waiting.get(target)
        if stop is not None:
            on, rest = builder.fresh("on"), builder.fresh("rest")
            branch_if_patient(self._builder, on, rest)
            builder.label(rest)
            self._frame.emit_gathered(stop, self._emit_return)
            builder.label(on)
        spend(self._builder, self._lowering.position, mask, f"node.{target}")

    def _is_direct(self, node: int, target: int) -> bool:
        """Whether nobody can be waiting where `after.node` would look before `target`."""
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

    def _held_headers(self) -> set[int]:
        return {stop.continuation for stop in self._held if not stop.is_barrier}

    def _arrive(self, node: Node, stop: Stop) -> None:
        """All lanes of the mask have come to a barrier."""
        emit_bring(self._lowering, self._at(stop))
        if stop in self._held:
            self._frame.emit_hold(stop, self._lowering.mask)
            self._builder.emit(f"br label %after.{node.index}")
        else:
            self._frame.emit_gathered(stop, self._emit_return)

    def _finish(self, stop: Stop, mask: str) -> None:
        """A stop is over for the lanes of `mask`: write the result, if it has one."""
        if not stop.is_barrier:
            return
        lowering = self._lowering
        is_held = stop in self._held
        lowering.mask, lowering.must_blend = mask, lambda _name: is_held
        lowering.position = stop.position
        emit_result(lowering, self._at(stop))

    def _enter_together(self, target: int) -> None:
        """Go to `target` with all lanes."""
        if target == self._flow.exit:
            self._builder.emit("br label %end")
            return
        if target in self._slots:
            self._builder.emit(f"store {self._mask_type} %active, ptr %wait.{target}")
        self._builder.emit(f"br label %node.{target}")

    def _emit_after(self, node: Node) -> None:
        builder, index = self._builder, node.index
        builder.label(f"after.{index}")
        ending = [loop for loop in self._flow.loops if loop.last == index]
        for loop in sorted(ending, key=lambda each: -each.header):
            if loop.header in self._slots:
                self._emit_again(loop)
        following = index + 1
        where = f"check.{following}" if following < self._flow.exit else "end"
        builder.emit(f"br label %{where}")

    def _emit_again(self, loop: Loop) -> None:
        """Run the loop again if lanes wait at its header."""
        builder = self._builder
        waiting = builder.name(f"load {self._mask_type}, ptr %wait.{loop.header}")
        again, onward = builder.fresh("again"), builder.fresh("onward")
        branch_if_any(self._builder, waiting, again, onward)
        builder.label(again)
        stop = self._waiting.get(loop.header)
        if stop is not None:
            on, hold = builder.fresh("on"), builder.fresh("hold")
            branch_if_patient(self._builder, on, hold)
            builder.label(hold)
            self._frame.emit_hold(stop, waiting)
            builder.emit(f"store {self._mask_type} zeroinitializer, ptr %wait.{loop.header}")
            builder.emit(f"br label %{onward}")
            builder.label(on)
        latches = [
            node.end - 1
            for node in self._flow.nodes
            if node.index in loop and loop.header in node.successors
        ]
        spend(self._builder, latches[-1], waiting, f"node.{loop.header}")
        builder.label(onward)
