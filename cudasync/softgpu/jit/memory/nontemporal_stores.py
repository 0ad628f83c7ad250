"""Cellar, jit. Stores past the caches, for results that are larger than all of them.

A store has its line fetched first, though all of it is about to be overwritten: half as much again
goes through the memory's narrowest place. Processors have stores that only send whole lines. They
are slower where the line is in a cache, or wanted there soon. So they are for kernels that

- read nothing of what they write, as far as their text tells;
- put nothing in order between threads: such stores are in no order with others, until the fence
  that stands behind the blocks of a thread;
- write more, at this launch, than caches keep.

Of these, stores of whole lines by whole warps go past the caches, the others as always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.analysis.streaming_stores import _is_far_store
from cudasync.softgpu.jit.kernel_abi.job_record import Field, read_field
from cudasync.softgpu.jit.memory.prefetch import LINE, fetch_ahead

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


def store_run(lowering: Lowering, start: str, type_: str, value: str, size: int) -> None:
    """Store `size` bytes of global memory at `start`: past the caches if the launch has it so."""
    builder = lowering.builder
    instruction = lowering.function.body[lowering.position]
    if not lowering.is_nontemporal or not _is_far_store(instruction) or size % LINE:
        _store_cached(lowering, start, type_, value, size)
        return
    past, cached, stored = (builder.fresh(each) for each in ("past", "cached", "stored"))
    is_wanted = builder.name(f"icmp ne i64 {read_field(builder, Field.NONTEMPORAL)}, 0")
    address = builder.name(f"ptrtoint ptr {start} to i64")
    odd = builder.name(f"and i64 {address}, {LINE - 1}")
    is_whole = builder.name(f"icmp eq i64 {odd}, 0")
    both = builder.name(f"and i1 {is_wanted}, {is_whole}")
    builder.emit(f"br i1 {both}, label %{past}, label %{cached}")
    builder.label(past)
    builder.emit(f"store {type_} {value}, ptr {start}, align {LINE}, !nontemporal !3")
    builder.emit(f"br label %{stored}")
    builder.label(cached)
    _store_cached(lowering, start, type_, value, size)
    builder.emit(f"br label %{stored}")
    builder.label(stored)


def _store_cached(lowering: Lowering, start: str, type_: str, value: str, size: int) -> None:
    # What goes past the caches is best asked for by nobody.
    fetch_ahead(lowering, start, size)
    lowering.builder.emit(f"store {type_} {value}, ptr {start}, align 1")
