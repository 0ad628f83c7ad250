"""Cellar, jit. Masks as integers made vectors of i1, in the form that suits the processor.

To LLVM that is a bitcast. With mask registers it is one instruction. Without them LLVM takes it
lane by lane wherever the vector is more than chosen by: a masked load becomes 200 instructions.
There each lane asks for its bit instead. A text calls a function, and only who makes machine code
says which of the two that is: texts are for any processor, and are kept as such.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder

_CALL = re.compile(r" @cudasync\.flags\.(\d+)\(")
# Levels with mask registers.
_WITH_MASKS = frozenset({"x86-64-v4"})


def flags_call(width: int, bits: str) -> str:
    """The instruction that makes a vector of i1 of an integer of `width` bits."""
    return f"call <{width} x i1> @cudasync.flags.{width}(i{width} {bits})"


def flags_of(builder: Builder, bits: str) -> str:
    """A mask as a vector, of an integer with a bit for each lane; what it was made of is known."""
    flags = builder.name(flags_call(builder.lanes, bits))
    builder.bits[flags] = bits
    return flags


def definitions(text: str, level: str) -> str:
    """The functions that `flags_call` calls in `text`, for processors of this level."""
    widths = sorted({int(width) for width in _CALL.findall(text)})
    return "".join(_definition(width, level in _WITH_MASKS) for width in widths)


def _definition(width: int, has_masks: bool) -> str:
    vector, flags = f"<{width} x i32>", f"<{width} x i1>"
    wide = "  %wide = add i32 0, %bits" if width == 32 else f"  %wide = zext i{width} %bits to i32"
    each = ", ".join(f"i32 {1 << lane}" for lane in range(width))
    body = [
        wide,
        f"  %first = insertelement {vector} poison, i32 %wide, i32 0",
        f"  %all = shufflevector {vector} %first, {vector} poison, {vector} zeroinitializer",
        f"  %own = and {vector} %all, <{each}>",
        f"  %flags = icmp ne {vector} %own, zeroinitializer",
    ]
    if has_masks or width == 1:
        body = [f"  %flags = bitcast i{width} %bits to {flags}"]
    head = f"define internal {flags} @cudasync.flags.{width}(i{width} %bits) alwaysinline {{"
    return "\n".join(["", head, *body, f"  ret {flags} %flags", "}", ""])
