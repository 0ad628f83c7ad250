"""Cellar. Special registers, as loads from the records of the thread and its block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.interface.reserved_shared_memory import REGISTERS, RESERVED_BYTES
from cudasync.softgpu.oracle.emission.state_records import BlockState, ThreadState

if TYPE_CHECKING:
    from cudasync.ptx.ir import Special
    from cudasync.softgpu.oracle.emission.emitter import Emitter

_AXES = "xyz"
_OF_BLOCK = {
    "%ntid": BlockState.block_size.offset,
    "%ctaid": BlockState.block_index.offset,
    "%nctaid": BlockState.grid_size.offset,
}
# Halves of the address of a cooperative grid's workspace.
_HALVES = {"%envreg1": 4, "%envreg2": 0}
# Registers with a constant value, the same in all lanes.
_CONSTANT = {"%smid": 0, "%nsmid": 1, "%gridid": 0, **REGISTERS}
_CLOCKS = frozenset(
    {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}
)


def block_field(emitter: Emitter, offset: int, type_: str) -> str:
    """One field of the block's record."""
    block = emitter.field("%frame", ThreadState.block.offset, "ptr")
    return emitter.field(block, offset, type_)


def read_special(emitter: Emitter, special: Special) -> str:
    """The value of a special register, in the width of its declared type."""
    name, _, axis = special.name.partition(".")
    if axis == "w":
        return "0"
    if name == "%tid":
        return emitter.field("%frame", ThreadState.index.offset + 4 * _AXES.index(axis), "i32")
    if name in _OF_BLOCK:
        return block_field(emitter, _OF_BLOCK[name] + 4 * _AXES.index(axis), "i32")
    if name in _HALVES:
        return block_field(emitter, BlockState.workspace.offset + _HALVES[name], "i32")
    if name in _CONSTANT:
        return str(_CONSTANT[name])
    if name in _CLOCKS:
        return _clock(emitter, special)
    linear = emitter.field("%frame", ThreadState.linear.offset, "i32")
    lane = emitter.value(f"and i32 {linear}, 31")
    match name:
        case "%laneid":
            return lane
        case "%warpid":
            return emitter.value(f"lshr i32 {linear}, 5")
        case "%nwarpid":
            return "32"
        case "%dynamic_smem_size":
            return block_field(emitter, BlockState.dynamic_shared_bytes.offset, "i32")
        case "%total_smem_size":
            return _total(emitter)
        case "%aggr_smem_size":
            return emitter.value(f"add i32 {_total(emitter)}, {RESERVED_BYTES}")
    equal = emitter.value(f"shl i32 1, {lane}")
    less = emitter.value(f"sub i32 {equal}, 1")
    match name:
        case "%lanemask_eq":
            return equal
        case "%lanemask_lt":
            return less
        case "%lanemask_le":
            return emitter.value(f"or i32 {less}, {equal}")
        case "%lanemask_ge":
            return emitter.value(f"xor i32 {less}, -1")
        case "%lanemask_gt":
            return emitter.value(f"xor i32 {emitter.value(f'or i32 {less}, {equal}')}, -1")
    emitter.refuse(f"special register {special.name} is not implemented")


def _total(emitter: Emitter) -> str:
    """The size of static and dynamic shared memory together."""
    total = block_field(emitter, BlockState.shared_bytes.offset, "i64")
    narrow = emitter.value(f"trunc i64 {total} to i32")
    return emitter.value(f"sub i32 {narrow}, {emitter.places.reserved_shared_bytes}")


def _clock(emitter: Emitter, special: Special) -> str:
    ticks = emitter.call("i64", "llvm.readcyclecounter")
    if special.name.endswith("_hi"):
        ticks = emitter.value(f"lshr i64 {ticks}, 32")
    if special.type.bits == 64:
        return ticks
    return emitter.value(f"trunc i64 {ticks} to i32")
