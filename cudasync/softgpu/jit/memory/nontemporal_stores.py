"""Cellar, jit. Non-temporal stores, for results that are larger than all caches.

An ordinary store first fetches its line, although all of it is about to be overwritten. That adds
half as much traffic on the memory bus. Processors have stores that only send whole lines. These are
slower if the line is in a cache, or needed there soon. So they are for kernels that

- read nothing that they write, according to their text;
- order nothing between threads: such stores are not ordered with other accesses, until the fence
  after the blocks of a thread;
- write more, in this launch, than caches hold.

In these kernels stores of whole lines by whole warps are non-temporal; other stores are ordinary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.analysis.streaming_stores import _is_far_store
from cudasync.softgpu.jit.kernel_abi.job_record import Field, read_field
from cudasync.softgpu.jit.memory.prefetch import LINE, fetch_ahead

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


def store_run(lowering: Lowering, start: str, type_: str, value: str, size: int) -> None:
    """Store `size` bytes of global memory at `start`; non-temporal if the launch says so."""
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
    # Only here: a prefetch does not help a non-temporal store.
    fetch_ahead(lowering, start, size)
    lowering.builder.emit(f"store {type_} {value}, ptr {start}, align 1")
