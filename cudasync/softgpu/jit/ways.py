"""Cellar, jit. How lanes get from the end of a node to the next: branches, barriers, returns.

Lanes that part wait at the nodes they go to, and control looks for whom to run from `after.node`
on; lanes that are together jump straight on, wherever nobody can be waiting that would be looked
at before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Label
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.barriers import emit_bring, number_and_count
from cudasync.softgpu.jit.branches import branch_if_patient, spend
from cudasync.softgpu.jit.divergence import parts
from cudasync.softgpu.jit.frames import Frame
from cudasync.softgpu.jit.job import Field, write_field
from cudasync.softgpu.jit.stops import has_named_barriers
from cudasync.softgpu.jit.values import integer

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.jit.divergence import Divergence
    from cudasync.softgpu.jit.flow import Flow, Node
    from cudasync.softgpu.jit.lowering import Lowering
    from cudasync.softgpu.jit.stops import Stop
    from cudasync.softgpu.jit.values import Value


class Ways:
    """The ways out of every node of a function, and where lanes wait or are held."""

    def __init__(
        self, lowering: Lowering, flow: Flow, divergence: Divergence, stops: tuple[Stop, ...]
    ) -> None:
        self._lowering = lowering
        self._builder = lowering.builder
        self._flow = flow
        self._divergence = divergence
        self._mask_type = self._builder.vector_type("i1")
        self._loop_at = {loop.header: loop for loop in flow.loops}
        self.barriers = {stop.position: stop for stop in stops if stop.is_barrier}
        self.waiting = {stop.continuation: stop for stop in stops if not stop.is_barrier}
        lowering.has_patience = bool(self.waiting)
        lowering.has_fuel = bool(flow.loops)
        gathered = {stop.code for stop in stops if not self._is_held(stop)}
        self.held = [stop for stop in stops if stop.code not in gathered]
        self.is_named = has_named_barriers(lowering.function)
        numbers = {}
        if self.is_named:
            numbers = {
                stop.code: number_and_count(lowering, self.at(stop))[0]
                for stop in stops
                if stop.is_barrier
            }
        self.frame = Frame(lowering, flow, stops, self.held, numbers)
        # The nodes that have a slot for waiting lanes.
        self.slots = set(divergence.divergent)
        for node in flow.nodes:
            if node.index in divergence.divergent or parts(flow.last(node.index), lowering.shapes):
                self.slots.update(node.successors)
        self.slots.discard(flow.exit)

    def at(self, stop: Stop) -> Instruction:
        """The instruction that a stop is."""
        return self._flow.function.body[stop.position]

    def _is_held(self, stop: Stop) -> bool:
        divergent = self._divergence.divergent
        if stop.loop is not None:
            return any(node in divergent for node in range(stop.loop.header, stop.loop.last + 1))
        return any(
            node.end - 1 == stop.position and node.index in divergent for node in self._flow.nodes
        )

    def leave(self, node: Node, instruction: Instruction) -> None:
        """What the last instruction of a node does with its lanes."""
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
            self._lowering.refuse(instruction, "a barrier for some lanes of a warp only")
        mask = self._lowering.mask
        taken = builder.name(f"and {self._mask_type} {mask}, {condition.text}")
        inverse = builder.name(f"xor {self._mask_type} {condition.text}, splat (i1 true)")
        other = builder.name(f"and {self._mask_type} {mask}, {inverse}")
        self._wait_at(target, taken)
        self._wait_at(following, other)
        builder.emit(f"br label %after.{node.index}")

    def _leave_by_table(self, node: Node, instruction: Instruction) -> None:
        """brx.idx: to one of several labels; an index beyond the last goes there, too."""
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
            self._wait_at(target, builder.name(f"and {self._mask_type} {left}, {here}"))
            others = builder.name(f"xor {self._mask_type} {here}, splat (i1 true)")
            left = builder.name(f"and {self._mask_type} {left}, {others}")
        self._wait_at(targets[-1], left)
        builder.emit(f"br label %after.{node.index}")

    def _node_at(self, label: str) -> int:
        start = self._flow.function.labels[label]
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

    def jump(self, node: Node, target: int) -> None:
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
        elif target in self.slots:
            builder.emit(f"store {self._mask_type} {mask}, ptr %wait.{target}")
        if target > node.index:
            builder.emit(f"br label %node.{target}")
            return
        stop = self.waiting.get(target)
        if stop is not None:
            on, rest = builder.fresh("on"), builder.fresh("rest")
            branch_if_patient(self._builder, on, rest)
            builder.label(rest)
            self.frame.emit_gathered(stop, self.emit_return)
            builder.label(on)
        spend(self._builder, self._lowering.number(), mask, f"node.{target}")

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
        return {stop.continuation for stop in self.held if not stop.is_barrier}

    def _arrive(self, node: Node, stop: Stop) -> None:
        """All lanes of the mask have come to a barrier."""
        emit_bring(self._lowering, self.at(stop))
        if stop in self.held:
            self.frame.emit_hold(stop, self._lowering.mask)
            self._builder.emit(f"br label %after.{node.index}")
        else:
            self.frame.emit_gathered(stop, self.emit_return)

    def guard(self, instruction: Instruction) -> Value:
        """The guard as a predicate that is true where the instruction takes effect."""
        guard = instruction.guard
        assert guard is not None
        value = self._lowering.load_register(guard.register)
        return self._lowering.negate(value) if guard.negated else value

    def following(self, node: Node) -> int:
        """Where lanes go that do not branch."""
        return node.successors[0] if node.successors else self._flow.exit

    def emit_return(self, code: str) -> None:
        """Leave the warp function; what is left of the budget goes along."""
        if self._flow.loops:
            builder = self._builder
            write_field(builder, Field.BUDGET_LEFT, builder.name("load i64, ptr %fuel"))
        self._builder.emit(f"ret i32 {code}")
