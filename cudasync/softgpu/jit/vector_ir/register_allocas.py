"""Cellar, jit. The registers of a function as LLVM stack slots, and when they are dead.

LLVM turns the slots into values. A slot costs a phi at each join, unless nothing can load it any
more. Control may skip a node without waiting lanes, so LLVM must assume that each store is skipped.
So slots that a loop does not really carry round are set to zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.liveness import defs
from cudasync.softgpu.jit.vector_ir.lowering_context import index_slot, lift_slots, slot
from cudasync.softgpu.jit.vector_ir.uniformity import UNIFORM, Kind
from cudasync.softgpu.jit.vector_ir.values import is_float, llvm_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudasync.softgpu.jit.analysis.divergence import Divergence
    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow, Loop
    from cudasync.softgpu.jit.analysis.suspension_points import Stop
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


def make_slots(lowering: Lowering, names: Iterable[str]) -> None:
    """Make a stack slot for each of these registers, and set it to zero."""
    builder = lowering.builder
    for name in names:
        for place, type_, nothing in register_slots(lowering, name):
            builder.allocations.append(f"  {place} = alloca {type_}")
            builder.emit(f"store {type_} {nothing}, ptr {place}")


def clear(lowering: Lowering, names: Iterable[str]) -> None:
    """Set registers to zero."""
    for name in names:
        for place, type_, nothing in register_slots(lowering, name):
            lowering.builder.emit(f"store {type_} {nothing}, ptr {place}")


def register_slots(lowering: Lowering, name: str) -> Iterator[tuple[str, str, str]]:
    """The slots of a register: name, type, and zero of that type."""
    builder, type_ = lowering.builder, llvm_type(lowering.function.registers[name].type)
    shape = lowering.shapes.get(name, UNIFORM)
    if shape.is_varying:
        yield slot(name), builder.vector_type(type_), "zeroinitializer"
    else:
        yield slot(name), type_, _zero(type_)
    if shape.scale:
        if shape.stride:
            yield index_slot(name), "i32", "0"
        else:
            yield index_slot(name), builder.vector_type("i32"), "zeroinitializer"
    if shape.kind is Kind.LIFTED:
        amount, lanes = lift_slots(name)
        yield amount, type_, "0"
        yield lanes, f"i{builder.lanes}", "0"


def _zero(type_: str) -> str:
    if is_float(type_):
        return "0.0"
    return "false" if type_ == "i1" else "0"


def spent(flow: Flow, divergence: Divergence, held: Iterable[Stop], loop: Loop) -> frozenset[str]:
    """The registers that a trip through `loop` hands from node to node, and that are dead after it.

    Neither the next trip needs them, nor lanes that wait elsewhere or are `held`.
    """
    needed = set(flow.live_in(loop.header))
    for node in divergence.pending.get(loop.header, ()):
        needed.update(flow.live_in(node))
    for stop in held:
        needed.update(flow.live_in(stop.continuation))
    inside = flow.nodes[loop.header : loop.last + 1]
    handed = set[str]().union(*(flow.live_in(node.index) for node in inside)) - needed
    body = flow.function.body
    own = {
        register.name
        for node in inside
        for position in range(node.start, node.end)
        for register in defs(body[position])
    }
    return frozenset(handed & own)
