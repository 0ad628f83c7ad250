"""Cellar, jit. The special registers that give a thread its position.

A warp that is a row has consecutive tid.x, one tid.y and one tid.z. Other warps read their
coordinates from a table that is made once for a launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.interface.reserved_shared_memory import REGISTERS, RESERVED_BYTES
from cudasync.softgpu.jit.kernel_abi.job_record import MOST_THREADS, Field, read_field
from cudasync.softgpu.jit.vector_ir.lowering_context import SPECIALS
from cudasync.softgpu.jit.vector_ir.uniformity import affine
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform, varying

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


def _tid(axis: int) -> Callable[[Lowering], Value]:
    def value(lowering: Lowering) -> Value:
        if lowering.variant.is_rowwise:
            if axis == 0:
                return Value("i32", "%tid.x", affine(1, 32))
            return uniform("i32", "%tid." + "xyz"[axis])
        builder = lowering.builder
        lanes = builder.lanes
        first = builder.name(f"mul i32 %warp, {lanes}")
        entry = builder.name(f"add i32 {first}, {axis * MOST_THREADS}")
        threads = read_field(builder, Field.THREADS, "ptr")
        place = builder.name(f"getelementptr i32, ptr {threads}, i32 {entry}")
        text = f"load {builder.vector_type('i32')}, ptr {place}, align 4, !invariant.load !0"
        return varying("i32", builder.name(text))

    return value


def _argument(name: str) -> Callable[[Lowering], Value]:
    return lambda lowering: uniform("i32", name)


def _constant(type_: str, number: int) -> Callable[[Lowering], Value]:
    return lambda lowering: integer(type_, number)


def _lane_mask(relation: Callable[[int], int]) -> Callable[[Lowering], Value]:
    def value(lowering: Lowering) -> Value:
        lanes = range(lowering.builder.lanes)
        elements = ", ".join(f"i32 {integer('i32', relation(lane)).text}" for lane in lanes)
        return varying("i32", f"<{elements}>")

    return value


def _lane(lowering: Lowering) -> Value:
    return Value("i32", "0", affine(1, 32))


def _clock(type_: str, shift: int) -> Callable[[Lowering], Value]:
    def value(lowering: Lowering) -> Value:
        builder = lowering.builder
        builder.declarations.add("declare i64 @llvm.readcyclecounter()")
        ticks = uniform("i64", builder.name("call i64 @llvm.readcyclecounter()"))
        if shift:
            ticks = builder.binary("lshr", ticks, integer("i64", shift))
        return builder.truncate(ticks, type_)

    return value


def _total_size(lowering: Lowering, more: int = 0) -> Value:
    """The size of static and dynamic shared memory together, plus `more`."""
    return _shared_size(lowering, lowering.storage.reserved_shared_bytes - more)


def _dynamic_size(lowering: Lowering) -> Value:
    storage = lowering.storage
    static_bytes = -(-storage.static_shared_bytes // 16) * 16
    return _shared_size(lowering, storage.reserved_shared_bytes + static_bytes)


def _shared_size(lowering: Lowering, less: int) -> Value:
    builder = lowering.builder
    size = builder.name("trunc i64 %shared.bytes to i32")
    return uniform("i32", builder.name(f"sub i32 {size}, {less}"))


def _warps(lowering: Lowering) -> Value:
    return uniform("i32", read_field(lowering.builder, Field.WARPS, "i32"))


def _workspace(shift: int) -> Callable[[Lowering], Value]:
    """Half of the address of a cooperative grid's workspace."""

    def value(lowering: Lowering) -> Value:
        builder = lowering.builder
        address = uniform("i64", read_field(builder, Field.WORKSPACE))
        return builder.truncate(builder.binary("lshr", address, integer("i64", shift)), "i32")

    return value


SPECIALS |= {"%envreg1": _workspace(32), "%envreg2": _workspace(0)}
for _axis, _letter in enumerate("xyz"):
    SPECIALS[f"%tid.{_letter}"] = _tid(_axis)
    for _name in ("ntid", "ctaid", "nctaid"):
        SPECIALS[f"%{_name}.{_letter}"] = _argument(f"%{_name}.{_letter}")
for _name in ("tid", "ctaid"):
    SPECIALS[f"%{_name}.w"] = _constant("i32", 0)
for _name in ("ntid", "nctaid"):
    SPECIALS[f"%{_name}.w"] = _constant("i32", 1)
SPECIALS |= {
    "%laneid": _lane,
    "%warpid": _argument("%warp"),
    "%nwarpid": _warps,
    "%smid": _constant("i32", 0),
    "%nsmid": _constant("i32", 1),
    "%gridid": _constant("i64", 0),
    "%lanemask_eq": _lane_mask(lambda lane: 1 << lane),
    "%lanemask_lt": _lane_mask(lambda lane: (1 << lane) - 1),
    "%lanemask_le": _lane_mask(lambda lane: (2 << lane) - 1),
    "%lanemask_gt": _lane_mask(lambda lane: -(2 << lane)),
    "%lanemask_ge": _lane_mask(lambda lane: -(1 << lane)),
    "%clock": _clock("i32", 0),
    "%clock_hi": _clock("i32", 32),
    "%clock64": _clock("i64", 0),
    "%globaltimer": _clock("i64", 0),
    "%globaltimer_lo": _clock("i32", 0),
    "%globaltimer_hi": _clock("i32", 32),
    "%total_smem_size": _total_size,
    "%aggr_smem_size": lambda lowering: _total_size(lowering, RESERVED_BYTES),
    "%dynamic_smem_size": _dynamic_size,
    **{name: _constant("i32", offset) for name, offset in REGISTERS.items()},
}
# Registers with values that only whole warps of 32 can give.
NEEDS_WHOLE_WARPS = frozenset(
    name for name in SPECIALS if "lane" in name or name in ("%warpid", "%nwarpid")
)
