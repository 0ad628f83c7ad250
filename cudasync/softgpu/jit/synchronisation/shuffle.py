"""Cellar, jit. Registers of other lanes of a warp: shfl.

A warp runs in lockstep, so its lanes are together here. Inactive lanes hold stale values; reading
these is undefined in PTX, and yields the stale values here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Pair
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.convergence.calls import note_meeting
from cudasync.softgpu.jit.vector_ir.uniformity import affine
from cudasync.softgpu.jit.vector_ir.values import Value, integer, varying

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def _shuffle(lowering: Lowering, instruction: ir.Instruction) -> None:
    builder = lowering.builder
    note_meeting(lowering, instruction)
    mode = next((m for m in instruction.modifiers if m in ("up", "down", "bfly", "idx")), None)
    if mode is None:
        lowering.refuse(instruction)
    value = builder.varying(lowering.read(instruction.operands[1], ScalarType.B32))
    offset = lowering.read(instruction.operands[2], ScalarType.U32)
    control = lowering.read(instruction.operands[3], ScalarType.U32)
    target = instruction.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, None)
    if offset.literal is not None and control.literal is not None:
        result, flags = _fixed(lowering, instruction, mode, value, offset.literal, control.literal)
    else:
        result, flags = _computed(lowering, instruction, mode, value, offset, control)
    lowering.write(first, result)
    if second is not None:
        lowering.write(second, flags)


def _source(mode: str, lane: int, offset: int, control: int) -> tuple[int, bool]:
    """The lane that `lane` reads, and whether it is in its segment (PTX ISA, shfl)."""
    offset &= 31
    bound, segment = control & 31, control >> 8 & 31
    most = (lane & segment) | (bound & ~segment)
    least = lane & segment
    match mode:
        case "up":
            found, is_inside = lane - offset, lane - offset >= most
        case "down":
            found, is_inside = lane + offset, lane + offset <= most
        case "bfly":
            found, is_inside = lane ^ offset, lane ^ offset <= most
        case _:
            found = least | (offset & ~segment & 31)
            is_inside = found <= most
    return (found, True) if is_inside else (lane, False)


def _fixed(
    lowering: Lowering,
    instruction: ir.Instruction,
    mode: str,
    value: Value,
    offset: int,
    control: int,
) -> tuple[Value, Value]:
    """A shuffle with constant operands, which is a constant permutation."""
    builder = lowering.builder
    sources = [_source(mode, lane, offset, control) for lane in range(builder.lanes)]
    order = ", ".join(f"i32 {source}" for source, _ in sources)
    flags = ", ".join(f"i1 {'true' if inside else 'false'}" for _, inside in sources)
    vector = builder.vector_type("i32")
    text = builder.name(
        f"shufflevector {vector} {value.text}, {vector} poison, <{builder.lanes} x i32> <{order}>"
    )
    if lowering.undefined is not None:
        lowering.undefined.shuffle(instruction, varying("i32", f"<{order}>"))
    return varying("i32", text), varying("i1", f"<{flags}>")


def _computed(
    lowering: Lowering,
    instruction: ir.Instruction,
    mode: str,
    value: Value,
    offset: Value,
    control: Value,
) -> tuple[Value, Value]:
    """A shuffle with operands known only at run time."""
    builder = lowering.builder
    binary = builder.binary
    lane = builder.varying(Value("i32", "0", affine(1, 32)))
    low = integer("i32", 31)
    offset = binary("and", builder.flat(offset), low)
    control = builder.flat(control)
    bound = binary("and", control, low)
    segment = binary("and", binary("lshr", control, integer("i32", 8)), low)
    outside = binary("xor", segment, integer("i32", -1))
    least = binary("and", lane, segment)
    most = binary("or", least, binary("and", bound, outside))
    match mode:
        case "up":
            found = binary("sub", lane, offset)
            is_inside = builder.compare("icmp sge", found, most)
        case "down":
            found = binary("add", lane, offset)
            is_inside = builder.compare("icmp sle", found, most)
        case "bfly":
            found = binary("xor", lane, offset)
            is_inside = builder.compare("icmp sle", found, most)
        case _:
            found = binary("or", least, binary("and", binary("and", offset, outside), low))
            is_inside = builder.compare("icmp sle", found, most)
    source = builder.varying(builder.select(is_inside, found, lane))
    if lowering.undefined is not None:
        lowering.undefined.shuffle(instruction, source)
    return pick(lowering, value, source), builder.varying(is_inside)


def pick(lowering: Lowering, value: Value, source: Value) -> Value:
    """For each lane, the value in lane `source`; sources are between 0 and 31."""
    builder = lowering.builder
    vector = builder.vector_type("i32")
    place = builder.allocate(vector)
    builder.emit(f"store {vector} {value.text}, ptr {place}, align 64")
    pointers = builder.vector_type("ptr")
    start = builder.name(f"getelementptr i32, ptr {place}, {vector} {source.text}")
    flags = builder.vector_type("i1")
    full = f"@llvm.masked.gather.v{builder.lanes}i32.v{builder.lanes}p0"
    builder.declarations.add(f"declare {vector} {full}({pointers}, {flags}, {vector})")
    return varying(
        "i32",
        builder.name(
            f"call {vector} {full}({pointers} align 4 {start}, {flags} splat (i1 true),"
            f" {vector} zeroinitializer)"
        ),
    )


EMITTERS: dict[str, Emitter] = {"shfl": _shuffle}
