"""Cellar, jit. The registers of a function as LLVM's stack slots, and when they hold nothing.

LLVM makes values of the slots. What a slot holds at a place costs it a phi there, wherever two ways
meet, unless nobody can load it any more; and as nodes are passed that no lane waits for, it takes
each store for one that may be left out. So what goes round a loop for nothing is said to be zero.
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
    """A stack slot for each register that has a shape, set to zero."""
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
    """The slots of a register: place, type, and zero of that type."""
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
    """The registers that a trip through `loop` hands from node to node, and to nobody behind it.

    Neither the next trip needs them then, nor lanes that wait elsewhere, or are `held`.
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
