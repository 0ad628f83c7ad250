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

from cudasync.ptx.access import Access, analyse
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.jit.fetching import LINE, fetch_ahead
from cudasync.softgpu.jit.job import Field, read_field
from cudasync.softgpu.jit.loops import any_in_loop
from cudasync.softgpu.jit.texts import Nontemporal
from cudasync.softgpu.waiting import ORDERED

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.lowering import Lowering
    from cudasync.softgpu.jit.program import Program

# A kernel with any of these has threads that rely on what others have stored. (Those that wait for
# each other at barriers work on tiles, whose lines lie apart: there it was slower.)
_TOGETHER = frozenset({"atom", "red", "bar", "barrier", "membar", "fence", "mbarrier", "call"})


def find_nontemporal(program: Program) -> Nontemporal | None:
    """What the kernel writes, if it may do so past the caches."""
    kernel = program.kernel
    stores = {n: each for n, each in enumerate(kernel.body) if _is_far_store(each)}
    if not stores or any(_is_shared_work(each) for each in kernel.body):
        return None
    found = analyse(program.module, kernel.name)
    if found.beyond or any(each.writes for each in found.symbols.values()):
        return None
    if not {*found.parameters} <= {Access.VALUE, Access.READ, Access.WRITE}:
        return None
    pairs = zip(program.kernel_storage.parameters.values(), found.parameters, strict=True)
    outputs = tuple(place for place, access in pairs if access is Access.WRITE)
    amount = sum(each.type.size * each.vector_size for each in stores.values())
    return Nontemporal(None if any_in_loop(kernel, stores) else amount, outputs)


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


def _is_far_store(instruction: ir.Instruction) -> bool:
    return instruction.opcode == "st" and instruction.space is StateSpace.GLOBAL


def _is_shared_work(instruction: ir.Instruction) -> bool:
    return instruction.opcode in _TOGETHER or not ORDERED.isdisjoint(instruction.modifiers)
