"""Cellar, jit. One kernel as LLVM IR text: the warp function, and what calls it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Special
from cudasync.softgpu.jit.barriers import open_function
from cudasync.softgpu.jit.blocks import Blocks, warp_parameters
from cudasync.softgpu.jit.builder import Builder
from cudasync.softgpu.jit.calls import argument_names, function_name
from cudasync.softgpu.jit.codegen import declaration
from cudasync.softgpu.jit.control import Control
from cudasync.softgpu.jit.divergence import analyse
from cudasync.softgpu.jit.emitters import EMITTERS, NEEDS_WHOLE_WARPS
from cudasync.softgpu.jit.flow import Flow
from cudasync.softgpu.jit.lowering import Lowering, Probe, Settings, Variant, index_slot, slot
from cudasync.softgpu.jit.runtime import FUNCTIONS
from cudasync.softgpu.jit.shapes import UNIFORM, Kind, Shape
from cudasync.softgpu.jit.stops import find_stops, held_nodes, is_barrier
from cudasync.softgpu.jit.values import is_float, llvm_type
from cudasync.softgpu.modifiers import unfit_type, unknown_modifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.program import Program

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


def needs_whole_warps(program: Program) -> bool:
    """Whether the kernel can tell how wide a warp is."""
    return any(
        instruction.opcode in _COLLECTIVE
        or any(
            isinstance(each, Special) and each.name in NEEDS_WHOLE_WARPS
            for each in instruction.operands
        )
        for instruction in program.instructions
    )


_COLLECTIVE = frozenset({"shfl", "vote", "match", "redux", "activemask", "elect"})


def lower(program: Program, variant: Variant, settings: Settings) -> KernelText:
    """Lower the kernel for `variant`; PtxError for the first instruction that cannot be."""
    kernel = _Part(program, program.kernel, variant, settings)
    # A function does not know which lanes will call it.
    anyone = replace(variant, is_whole=False)
    parts = [kernel]
    parts += [_Part(program, each, anyone, settings) for each in program.functions.values()]
    is_named = kernel.control.is_named and bool(kernel.stops)
    own_functions = []
    frame_bytes = kernel.control.frame_bytes
    if is_named:
        own_functions.append(open_function(kernel.lowering, kernel.stops, frame_bytes))
    outer = Blocks(
        variant, frame_bytes=frame_bytes, has_stops=bool(kernel.stops), is_named=is_named
    )
    outer.emit(local_bytes=program.slab_bytes, uses_shared=bool(program.kernel_storage.shared))
    builders = [part.builder for part in parts]
    functions = dict(FUNCTIONS)
    needed = _ALWAYS | outer.builder.declarations
    for builder in builders:
        functions |= builder.functions
        needed |= builder.declarations
    declarations = "\n".join(sorted(needed))
    text = "\n".join(
        [
            *(line for part in parts for line in part.text()),
            f"define i32 @kernel(ptr %job) {_ATTRIBUTES} {{",
            *outer.builder.lines,
            "}",
            *own_functions,
            *(f"{name} = {text}" for each in builders for name, text in each.constants.items()),
            *(declaration(each) for each in functions.values()),
            declarations,
            _METADATA,
        ]
    )
    has_waiting_loop = any(not stop.is_barrier for stop in kernel.stops)
    return KernelText(text, functions, declarations, frame_bytes, has_waiting_loop)


class _Part:
    """The kernel or one of its functions, lowered."""

    def __init__(
        self, program: Program, function: ir.Function, variant: Variant, settings: Settings
    ) -> None:
        self._function = function
        self._lanes = variant.lanes
        flow = Flow(function, is_barrier)
        self.stops = find_stops(flow) if function.is_kernel else ()

        def probe(shapes: dict[str, Shape]) -> Probe:
            return Probe(program, function, variant, settings, shapes)

        _refuse_unknown(probe({}))
        held = held_nodes(flow, self.stops)
        divergence = analyse(flow, held, EMITTERS, probe, assume_varying=settings.assume_varying)
        self.builder = Builder(variant.lanes)
        shapes = divergence.shapes
        self.lowering = Lowering(program, function, variant, settings, shapes, self.builder)
        self.control = Control(self.lowering, flow, divergence, self.stops, EMITTERS)
        _emit_registers(self.lowering)
        self.control.emit()

    def text(self) -> list[str]:
        """The LLVM function."""
        parameters, name = warp_parameters(self._lanes), "@warp"
        if not self._function.is_kernel:
            name = function_name(self._function)
            for number in argument_names(self._function).values():
                parameters += f", i64 %argument.{number}"
        return [
            f"define internal i32 {name}({parameters}) {_ATTRIBUTES} {{",
            "entry:",
            *self.builder.allocations,
            *self.builder.lines,
            "}",
        ]


def _refuse_unknown(probe: Probe) -> None:
    branches = ("bra", "brx", "ret", "exit")
    for instruction in probe.function.body:
        if instruction.opcode not in EMITTERS and instruction.opcode not in branches:
            probe.refuse(instruction)
        if is_barrier(instruction) and not probe.is_kernel:
            probe.refuse(instruction, "a barrier in a device function is not implemented")
        modifier = unknown_modifier(instruction)
        if modifier is not None:
            probe.refuse(instruction, f"{instruction.opcode} with .{modifier} is not implemented")
        unfit = unfit_type(instruction)
        if unfit is not None:
            probe.refuse(instruction, f"{instruction.opcode} does not take .{unfit}")


def _emit_registers(lowering: Lowering) -> None:
    """A stack slot for each register that has a shape, set to zero."""
    builder = lowering.builder
    builder.allocations.append(f"  %carry = alloca {builder.vector_type('i1')}")
    builder.emit(f"store {builder.vector_type('i1')} zeroinitializer, ptr %carry")
    for name, register in lowering.function.registers.items():
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
