"""Cellar, jit. Turns integer masks into vectors of i1, in the form that suits the processor.

For LLVM the conversion is a bitcast. With mask registers the bitcast is one instruction. Without
them LLVM expands it lane by lane, unless the vector is used only in a select: a masked load becomes
200 instructions. There each lane tests its own bit instead. A text calls a function, which is only
defined at code generation: texts are for any processor, and are kept in that form.
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
    """The call that turns an integer of `width` bits into a vector of i1."""
    return f"call <{width} x i1> @cudasync.flags.{width}(i{width} {bits})"


def flags_of(builder: Builder, bits: str) -> str:
    """An integer with a bit for each lane as a mask vector; the builder remembers the integer."""
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
