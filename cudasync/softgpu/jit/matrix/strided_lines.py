"""Cellar, jit. Moves lines of a matrix that lie equally far apart, by one call for each matrix.

A function for each size checks the lines and copies them. An unrolled product has thousands of such
moves, so none of that is inline. Between memory and lanes, lines lie in stack memory, one behind
the other.

All lines are valid if the first and the last byte lie in the instruction's last range. Otherwise
the first and the last element of each active lane's line are looked up. That is enough, because the
gap between two allocations is longer than a line.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudasync.softgpu.interface.access_recording import Touch
from cudasync.softgpu.jit.addressing.memcheck import next_lane, own_row
from cudasync.softgpu.jit.checks.recording_calls import note
from cudasync.softgpu.jit.kernel_abi.access_descriptors import read_window
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.uniformity import affine
from cudasync.softgpu.jit.vector_ir.values import Value, uniform, varying

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.addressing.address_spaces import Place
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
    from cudasync.softgpu.semantics.matrix_forms import Part

_LANES = 32


@dataclass(frozen=True, slots=True)
class StridedLines:
    """The lines of `part`: line n begins at `first + n * apart`, both uniform i64.

    `place` names the state space of the lines; its address is not used.
    """

    part: Part
    place: Place
    first: str
    apart: str

    def load(self, lowering: Lowering, instruction: ir.Instruction, memory: str) -> None:
        """Load the lines of the active lanes to stack memory; other lines are zero."""
        self._move(lowering, "load", memory)
        self._note(lowering, instruction, Touch.READ)

    def store(self, lowering: Lowering, instruction: ir.Instruction, memory: str) -> None:
        """Store the lines of the active lanes from stack memory."""
        self._move(lowering, "store", memory)
        self._note(lowering, instruction, Touch.WRITTEN)

    def _move(self, lowering: Lowering, way: str, memory: str) -> None:
        builder, part = lowering.builder, self.part
        is_checked = lowering.settings.memcheck and self.place.checked is not None
        name, text = _function(way, part.count, part.line_bytes, part.element_bytes, is_checked)
        builder.functions[name] = text
        builder.declarations |= _DECLARATIONS
        where = f"i64 {self.first}, i64 {self.apart}"
        mask = mask_word(builder, lowering.mask)
        if not is_checked:
            builder.emit(f"call void {name}({where}, i32 {mask}, ptr {memory})")
            return
        size, own = part.element_bytes, lowering.number()
        # The displacements of the first and the last element of a line.
        places = dict.fromkeys((0, part.line_bytes - size))
        members = [(displacement, size, own) for displacement in places]
        any_address = varying("i64", "")
        row = own_row(lowering, self.place.where, self.place.window, any_address, members)
        arguments = f"ptr %job, ptr {row}, {where}, i32 {mask}, ptr {memory}"
        is_right = builder.name(f"call i1 {name}({arguments})")
        go_on = builder.fresh("moved")
        builder.emit(f"br i1 {is_right}, label %{go_on}, label %fault")
        builder.label(go_on)

    def _note(self, lowering: Lowering, instruction: ir.Instruction, touch: Touch) -> None:
        if not (lowering.settings.record or lowering.settings.races):
            return
        builder = lowering.builder
        lane = builder.varying(Value("i64", "0", affine(1, 64)))
        distance = builder.binary("mul", lane, uniform("i64", self.apart))
        address = builder.binary("add", distance, uniform("i64", self.first))
        where = replace(self.place, address=address)
        note(lowering, instruction, where, self.part.line_bytes, touch)


_DECLARATIONS = {
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
}


@functools.cache
def _function(way: str, count: int, size: int, alignment: int, is_checked: bool) -> tuple[str, str]:
    """Name and text of the function that moves `count` lines of `size` bytes.

    A checked function returns false after a fault.
    """
    name = f"@cudasync.lines.{way}.{count}x{size}.{alignment}"
    arguments = "i64 %first, i64 %apart, i32 %mask, ptr %lines"
    type_, result, check = "void", "void", ""
    if is_checked:
        name += ".checked"
        arguments = f"ptr %job, ptr %row, {arguments}"
        type_, result, check = "i1", "i1 true", _check(count, size, alignment)
    target, source = ("%line", "%there") if way == "load" else ("%there", "%line")
    clear = ""
    if way == "load":
        clear = (
            "  call void @llvm.memset.p0.i64(ptr align 64 %lines, i8 0, "
            f"i64 {count * size}, i1 false)\n"
        )
    return (
        name,
        f"""
define {type_} {name}({arguments}) {{
begin:
{check}  br label %entry
entry:
{clear}{next_lane()}
  %number = zext i32 %index to i64
  %distance = mul i64 %number, %apart
  %address = add i64 %first, %distance
  %there = inttoptr i64 %address to ptr
  %offset = mul i32 %index, {size}
  %line = getelementptr i8, ptr %lines, i32 %offset
  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)
  br label %next
done:
  ret {result}
}}
""",
    )


def _check(count: int, size: int, alignment: int) -> str:
    """Text that goes on only if the lines are valid."""
    return f"""\
  %addresses = alloca [{_LANES} x i64], align 64
{read_window()}
  %to.last = mul i64 %apart, {count - 1}
  %last = add i64 %first, %to.last
  %behind = add i64 %last, {size}
  %bits = or i64 %first, %apart
  %low.bits = and i64 %bits, {alignment - 1}
  %is.aligned = icmp eq i64 %low.bits, 0
  %to.low = sub i64 %first, %window.start
  %to.high = sub i64 %behind, %window.start
  %is.low = icmp ult i64 %to.low, %window.length
  %is.high = icmp ule i64 %to.high, %window.length
  %is.both = and i1 %is.low, %is.high
  %is.within = and i1 %is.both, %is.aligned
  br i1 %is.within, label %entry, label %spread
spread:
  %lane.number = phi i64 [0, %begin], [%lane.next, %spread]
  %lane.distance = mul i64 %lane.number, %apart
  %lane.address = add i64 %first, %lane.distance
  %lane.at = getelementptr i64, ptr %addresses, i64 %lane.number
  store i64 %lane.address, ptr %lane.at
  %lane.next = add i64 %lane.number, 1
  %is.more = icmp ult i64 %lane.next, {_LANES}
  br i1 %is.more, label %spread, label %look
look:
  %is.right = call i1 @cudasync.check(ptr %job, ptr %row, ptr %addresses, i32 %mask)
  br i1 %is.right, label %moving, label %wrong
wrong:
  ret i1 false
moving:
"""
