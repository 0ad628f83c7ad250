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

from cudasync.softgpu.jit.barriers import emit_result
from cudasync.softgpu.jit.branches import PATIENCE, branch_if_any, branch_if_patient, spend
from cudasync.softgpu.jit.divergence import PARTING
from cudasync.softgpu.jit.frames import DONE, FAILED
from cudasync.softgpu.jit.groups import find_groups
from cudasync.softgpu.jit.job import Field, read_field
from cudasync.softgpu.jit.stops import branch_back
from cudasync.softgpu.jit.ways import Ways

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.divergence import Divergence
    from cudasync.softgpu.jit.flow import Flow, Loop, Node
    from cudasync.softgpu.jit.lowering import Emitter, Lowering
    from cudasync.softgpu.jit.stops import Stop

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
        self._ways = Ways(lowering, flow, divergence, stops)

    @property
    def frame_bytes(self) -> int:
        return self._ways.frame.size

    @property
    def is_named(self) -> bool:
        return self._ways.is_named

    def emit(self) -> None:
        """Everything between the slots of registers and the closing brace."""
        builder = self._builder
        for index in sorted(self._ways.slots):
            builder.allocations.append(f"  %wait.{index} = alloca {self._mask_type}")
            builder.emit(f"store {self._mask_type} zeroinitializer, ptr %wait.{index}")
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
                builder.emit(f"store {self._mask_type} %active, ptr %wait.0")
            self._ways.frame.emit_entry("node.0")
            self._ways.frame.emit_resumes(self._enter_together, self._finish, "check.0")
            for node in self._flow.nodes:
                self._emit_node(node)
        self._emit_end()

    def _emit_end(self) -> None:
        builder = self._builder
        builder.label("end")
        if self._ways.held:
            self._ways.frame.emit_held(self._ways.emit_return)
        self._ways.emit_return(str(DONE))
        builder.label("fault")
        self._ways.emit_return(str(FAILED))

    # One node.

    def _emit_node(self, node: Node) -> None:
        builder, lowering, index = self._builder, self._lowering, node.index
        builder.label(f"check.{index}")
        if index in self._ways.slots:
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
        if index in self._ways.slots:
            builder.emit(f"store {self._mask_type} zeroinitializer, ptr %wait.{index}")
        body = self._flow.function.body
        lowering.groups = find_groups(body, node.start, node.end)
        ends_in_control = self._is_control(body[node.end - 1], node.end - 1)
        for position in range(node.start, node.end - ends_in_control):
            lowering.position = position
            self._emit_instruction(body[position])
        lowering.position = node.end - 1
        if ends_in_control:
            self._ways.leave(node, body[node.end - 1])
        else:
            self._ways.jump(node, self._ways.following(node))
        self._emit_after(node)

    def _is_control(self, instruction: Instruction, position: int) -> bool:
        return instruction.opcode in PARTING or position in self._ways.barriers

    def _emit_instruction(self, instruction: Instruction) -> None:
        emitter = self._emitters[instruction.opcode]
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

    def _finish(self, stop: Stop, mask: str) -> None:
        """A stop is over for the lanes of `mask`: write the result, if it has one."""
        if not stop.is_barrier:
            return
        lowering = self._lowering
        is_held = stop in self._ways.held
        lowering.mask, lowering.must_blend = mask, lambda _name: is_held
        lowering.position = stop.position
        emit_result(lowering, self._ways.at(stop))

    def _enter_together(self, target: int) -> None:
        """Go to `target` with all lanes."""
        if target == self._flow.exit:
            self._builder.emit("br label %end")
            return
        if target in self._ways.slots:
            self._builder.emit(f"store {self._mask_type} %active, ptr %wait.{target}")
        self._builder.emit(f"br label %node.{target}")

    def _emit_after(self, node: Node) -> None:
        builder, index = self._builder, node.index
        builder.label(f"after.{index}")
        ending = [loop for loop in self._flow.loops if loop.last == index]
        for loop in sorted(ending, key=lambda each: -each.header):
            if loop.header in self._ways.slots:
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
        stop = self._ways.waiting.get(loop.header)
        if stop is not None:
            on, hold = builder.fresh("on"), builder.fresh("hold")
            branch_if_patient(self._builder, on, hold)
            builder.label(hold)
            self._ways.frame.emit_hold(stop, waiting)
            builder.emit(f"store {self._mask_type} zeroinitializer, ptr %wait.{loop.header}")
            builder.emit(f"br label %{onward}")
            builder.label(on)
        spend(
            self._builder,
            self._lowering.number(branch_back(self._flow, loop)),
            waiting,
            f"node.{loop.header}",
        )
        builder.label(onward)
