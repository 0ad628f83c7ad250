"""Cellar, jit. Finds registers that differ between lanes, and branches at which lanes diverge.

The two results depend on each other. One fixpoint finds both; it only ever moves registers towards
VARYING and branches towards divergent:

1. Shapes. A register has the shape that its definitions agree on, found by running the emitters
   on the shapes known so far. A definition under a varying guard is varying.
2. Parting. A branch on a varying predicate makes lanes diverge. They run its sides until the first
   post-dominator at which `flow` makes them reconverge. While a node on one side runs, lanes
   may wait at any node of another side, or where the sides meet: its `pending` nodes.

A definition does not disturb waiting lanes if no pending node needs the register. Otherwise it must
keep their copy: the register is VARYING, and the definition blends under the mask. So the index of
a loop with a divergent exit stays affine: lanes that have left wait behind the loop, where the
index is dead.

If one side may hold lanes at a suspension point (a barrier, or a loop that waits for memory), other
lanes run past the post-dominator. So the lanes of such a branch never count as reconverged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.errors import PtxError
from cudasync.ptx.ir import Register
from cudasync.ptx.liveness import uses
from cudasync.softgpu.jit.analysis.abstract_interpretation import Probe, Unknown
from cudasync.softgpu.jit.vector_ir.uniformity import UNIFORM, VARYING, Shape, join
from cudasync.softgpu.semantics.lowering_errors import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter

PARTING = frozenset({"bra", "brx", "ret", "exit"})


def parts(instruction: ir.Instruction, shapes: Mapping[str, Shape]) -> bool:
    """Whether this instruction makes the lanes of a warp diverge."""
    if instruction.opcode not in PARTING:
        return False
    deciding = [instruction.guard.register] if instruction.guard is not None else []
    if instruction.opcode == "brx":
        deciding += [each for each in instruction.operands if isinstance(each, Register)]
    return any(not shapes.get(each.name, UNIFORM).is_uniform for each in deciding)


class Divergence:
    """The result, valid for one variant of one kernel.

    `pending[node]` holds the nodes, or the exit, at which lanes may wait while `node` runs;
    it is empty exactly if all remaining lanes are together.
    """

    __slots__ = ("_needed", "divergent", "pending", "shapes")

    def __init__(self, shapes: dict[str, Shape]) -> None:
        self.shapes = shapes
        self.divergent: frozenset[int] = frozenset()
        self.pending: dict[int, frozenset[int]] = {}
        self._needed: dict[int, frozenset[str]] = {}

    def blends(self, register: str, node: int) -> bool:
        """Whether a definition in `node` must keep the register's value in waiting lanes."""
        return register in self._needed.get(node, ())

    def part(self, flow: Flow, branches: frozenset[int], held: frozenset[int]) -> None:
        """Set the divergent `branches`; lanes may be held at the nodes `held`."""
        pending: dict[int, set[int]] = {}
        for branch in branches:
            stop, sides = _until_all_meet(flow, branch)
            if not flow.is_reducible or any(side & held for side in sides):
                stop, sides = flow.exit, _sides(flow, branch, flow.exit)
            for index, side in enumerate(sides):
                elsewhere = {stop}.union(*(s for k, s in enumerate(sides) if k != index))
                for node in side:
                    pending.setdefault(node, set()).update(elsewhere)
        self.divergent = frozenset(pending)
        self.pending = {node: frozenset(found) for node, found in pending.items()}
        self._needed = {
            node: frozenset().union(*(flow.live_in(each) for each in found))
            for node, found in pending.items()
        }


def _sides(flow: Flow, branch: int, stop: int) -> list[frozenset[int]]:
    """For each way out of a branch, the nodes on it before `stop`."""
    return [flow.reach(each, stop) for each in flow.nodes[branch].successors]


def _until_all_meet(flow: Flow, branch: int) -> tuple[int, list[frozenset[int]]]:
    """The first post-dominator that no lane runs before all have reached it, and the sides."""
    stop = flow.post_dominators[branch]
    while True:
        sides = _sides(flow, branch, stop)
        if not _runs_before(flow, branch, stop, sides):
            return stop, sides
        stop = flow.post_dominators[stop]


def _runs_before(flow: Flow, branch: int, stop: int, sides: list[frozenset[int]]) -> bool:
    """Whether lanes that have reached `stop` may run it while others are on their way.

    Lanes that begin a loop anew wait until no lane is left inside. If `stop` is inside, too, they
    wait longer than the lanes at `stop`. If `stop` is the header itself, lanes there do not wait
    for lanes that have left the loop and return through a loop around it.
    """
    around = [loop for loop in flow.loops if stop in loop]
    nodes = frozenset({branch}).union(*sides)
    if any(
        loop.header == stop and branch in loop and not all(n in loop for n in nodes)
        for loop in around
    ):
        return True
    headers = {loop.header for loop in around} - {stop}
    return any(
        following in headers and following <= node
        for node in nodes
        for following in flow.nodes[node].successors
    )


def analyse(
    flow: Flow,
    held: frozenset[int],
    emitters: dict[str, Emitter],
    make_probe: Callable[[dict[str, Shape]], Probe],
    *,
    assume_varying: bool,
) -> Divergence:
    """Shapes and divergence for the kernel of `flow`; `held` are nodes that may hold lanes."""
    shapes: dict[str, Shape] = {}
    # A register that may be read before it is written holds zero.
    for name in flow.live_in(0):
        shapes[name] = VARYING if assume_varying else UNIFORM
    result = Divergence(shapes)
    search = _Search(flow, emitters, make_probe(shapes), shapes, assume_varying=assume_varying)
    search.settle(search.all_instructions())
    while True:
        branches = frozenset(
            node.index for node in flow.nodes if parts(flow.last(node.index), shapes)
        )
        result.part(flow, branches, held)
        demoted = search.demote(result)
        if not demoted:
            return result
        search.settle(search.readers(demoted))


class _Search:
    """Propagates shapes along definitions and uses."""

    def __init__(
        self,
        flow: Flow,
        emitters: dict[str, Emitter],
        probe: Probe,
        shapes: dict[str, Shape],
        *,
        assume_varying: bool,
    ) -> None:
        self._body = flow.function.body
        self._emitters = emitters
        self._probe = probe
        self._shapes = shapes
        self._assume_varying = assume_varying
        self._indices = [i for node in flow.nodes for i in range(node.start, node.end)]
        self._node_of = {i: node.index for node in flow.nodes for i in range(node.start, node.end)}
        self._readers: dict[str, list[int]] = {}
        for index in self._indices:
            for register in uses(self._body[index]):
                self._readers.setdefault(register.name, []).append(index)
        # The nodes in which each register is defined.
        self._defined: dict[str, set[int]] = {}

    def all_instructions(self) -> list[int]:
        return list(self._indices)

    def readers(self, names: set[str]) -> list[int]:
        return sorted({index for name in names for index in self._readers.get(name, ())})

    def settle(self, indices: list[int]) -> None:
        """Evaluate these instructions, and then repeatedly the readers of changed registers."""
        while indices:
            changed: set[str] = set()
            for index in indices:
                changed |= self._evaluate(index)
            indices = self.readers(changed)

    def _evaluate(self, index: int) -> set[str]:
        instruction = self._body[index]
        emitter = self._emitters.get(instruction.opcode)
        if emitter is None:
            return set()
        probe = self._probe
        probe.written = []
        probe.position = index
        is_varying = self._assume_varying
        try:
            guard = instruction.guard
            if guard is not None and not probe.load_register(guard.register).is_uniform:
                is_varying = True
            emitter(probe, instruction)
        except Unknown:
            return set()
        except PtxError:
            raise
        except Exception as error:
            raise refusal(error, instruction, probe.program.module.file) from error
        changed: set[str] = set()
        for name, shape in probe.written:
            self._defined.setdefault(name, set()).add(self._node_of[index])
            found = VARYING if is_varying else shape
            known = self._shapes.get(name)
            if known is not None:
                found = join(known, found)
            if found != known:
                self._shapes[name] = found
                changed.add(name)
        return changed

    def demote(self, divergence: Divergence) -> set[str]:
        """Make registers that waiting lanes need varying; return the names of changed registers."""
        demoted = {
            name
            for name, nodes in self._defined.items()
            if not self._shapes[name].is_varying
            and any(divergence.blends(name, node) for node in nodes)
        }
        for name in demoted:
            self._shapes[name] = VARYING
        return demoted
