"""Cellar, jit. One kernel as LLVM IR text: the warp function, and what calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Special
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.jit.barriers import open_function
from cudasync.softgpu.jit.blocks import Blocks, warp_parameters
from cudasync.softgpu.jit.builder import Builder
from cudasync.softgpu.jit.codegen import declaration
from cudasync.softgpu.jit.control import Control
from cudasync.softgpu.jit.divergence import analyse
from cudasync.softgpu.jit.emitters import EMITTERS, NEEDS_WHOLE_WARPS
from cudasync.softgpu.jit.flow import Flow
from cudasync.softgpu.jit.lowering import Lowering, Probe, Settings, Variant, index_slot, slot
from cudasync.softgpu.jit.runtime import FUNCTIONS
from cudasync.softgpu.jit.shapes import UNIFORM, Kind, Shape
from cudasync.softgpu.jit.stops import find_stops, held_nodes, is_barrier
from cudasync.softgpu.jit.storage import storage
from cudasync.softgpu.jit.values import is_float, llvm_type
from cudasync.softgpu.modifiers import unknown_modifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx import ir

_ATTRIBUTES = "nounwind null_pointer_is_valid"
_ALWAYS = {
    "declare i32 @llvm.cttz.i32(i32, i1)",
    "declare i32 @llvm.ctlz.i32(i32, i1)",
}
_METADATA = """\
!0 = !{}
!1 = !{!"branch_weights", i32 1, i32 2000}
!2 = !{!"branch_weights", i32 2000, i32 1}
"""


@dataclass(frozen=True, slots=True)
class KernelText:
    """LLVM IR of one variant of a kernel, and the scratch each of its warps needs."""

    text: str
    # What it calls, and what that calls, see `codegen.compile_text`.
    functions: Mapping[str, str]
    declarations: str
    frame_bytes: int
    has_waiting_loop: bool


def needs_whole_warps(kernel: ir.Function) -> bool:
    """Whether the kernel can tell how wide a warp is."""
    return any(
        instruction.opcode in _COLLECTIVE
        or any(
            isinstance(each, Special) and each.name in NEEDS_WHOLE_WARPS
            for each in instruction.operands
        )
        for instruction in kernel.body
    )


_COLLECTIVE = frozenset({"shfl", "vote", "match", "redux", "activemask", "elect"})


def lower(
    module: ir.Module, kernel: ir.Function, variant: Variant, settings: Settings
) -> KernelText:
    """Lower `kernel` for `variant`; PtxError for the first instruction that cannot be."""
    places = storage(module, kernel)
    flow = Flow(kernel, is_barrier)
    stops = find_stops(flow)

    def probe(shapes: dict[str, Shape]) -> Probe:
        return Probe(kernel, module.file, places, variant, settings, shapes)

    _refuse_unknown(probe({}))
    divergence = analyse(
        flow, held_nodes(flow, stops), EMITTERS, probe, assume_varying=settings.assume_varying
    )
    builder = Builder(variant.lanes)
    shapes = divergence.shapes
    lowering = Lowering(kernel, module.file, places, variant, settings, shapes, builder)
    control = Control(lowering, flow, divergence, stops, EMITTERS)
    _emit_registers(lowering)
    control.emit()
    uses_shared = any(
        each.space is StateSpace.SHARED for each in (*module.variables, *kernel.variables)
    )
    is_named = control.is_named and bool(stops)
    own_functions = []
    if is_named:
        own_functions.append(open_function(lowering, stops, control.frame_bytes))
    outer = Blocks(
        variant, frame_bytes=control.frame_bytes, has_stops=bool(stops), is_named=is_named
    )
    outer.emit(local_bytes=places.local_bytes, uses_shared=uses_shared)
    functions = FUNCTIONS | builder.functions
    declarations = "\n".join(sorted(builder.declarations | outer.builder.declarations | _ALWAYS))
    text = "\n".join(
        [
            f"define internal i32 @warp({warp_parameters(variant.lanes)}) {_ATTRIBUTES} {{",
            "entry:",
            *builder.allocations,
            *builder.lines,
            "}",
            f"define i32 @kernel(ptr %job) {_ATTRIBUTES} {{",
            *outer.builder.lines,
            "}",
            *own_functions,
            *(declaration(each) for each in functions.values()),
            declarations,
            _METADATA,
        ]
    )
    has_waiting_loop = any(not stop.is_barrier for stop in stops)
    return KernelText(text, functions, declarations, control.frame_bytes, has_waiting_loop)


def _refuse_unknown(probe: Probe) -> None:
    branches = ("bra", "ret", "exit")
    for instruction in probe.kernel.body:
        if instruction.opcode not in EMITTERS and instruction.opcode not in branches:
            probe.refuse(instruction)
        modifier = unknown_modifier(instruction)
        if modifier is not None:
            probe.refuse(instruction, f"{instruction.opcode} with .{modifier} is not implemented")


def _emit_registers(lowering: Lowering) -> None:
    """A stack slot for each register that has a shape, set to zero."""
    builder = lowering.builder
    builder.allocations.append(f"  %carry = alloca {builder.vector_type('i1')}")
    builder.emit(f"store {builder.vector_type('i1')} zeroinitializer, ptr %carry")
    for name, register in lowering.kernel.registers.items():
        shape = lowering.shapes.get(name, UNIFORM)
        type_ = llvm_type(register.type)
        held = builder.vector_type(type_) if shape.is_varying else type_
        nothing = "zeroinitializer" if shape.is_varying else _nothing(type_)
        builder.allocations.append(f"  {slot(name)} = alloca {held}")
        builder.emit(f"store {held} {nothing}, ptr {slot(name)}")
        if shape.kind is Kind.WIDE:
            narrow = "i32" if shape.stride else builder.vector_type("i32")
            empty = "0" if shape.stride else "zeroinitializer"
            builder.allocations.append(f"  {index_slot(name)} = alloca {narrow}")
            builder.emit(f"store {narrow} {empty}, ptr {index_slot(name)}")


def _nothing(type_: str) -> str:
    if is_float(type_):
        return "0.0"
    return "false" if type_ == "i1" else "0"
