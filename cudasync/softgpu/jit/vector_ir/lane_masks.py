"""Cellar, jit. Masks of lanes, as vectors of i1 and as integers.

A mask is named by its vector. Branches, reports and collectives need the integer. Most masks were
made from an integer, which is remembered (`Builder.bits`). Operations on masks are done on both
forms, and LLVM drops the form that is not used.

Between nodes a mask is kept as an integer, which takes no vector register. If a node blends under
its mask, the mask is kept as a vector: conversion both ways costs more instructions than packing to
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.mask_vectors import flags_of

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder

NOBODY = "zeroinitializer"
EVERYBODY = "splat (i1 true)"
# The same two masks as integers.
_CONSTANT = {NOBODY: "0", EVERYBODY: "-1"}


def mask_bits(builder: Builder, mask: str) -> str:
    """A mask as an integer with one bit for each lane."""
    known = _known(builder, mask)
    if known is not None:
        return known
    return builder.name(f"bitcast {builder.vector_type('i1')} {mask} to i{builder.lanes}")


def mask_word(builder: Builder, mask: str) -> str:
    """A mask as an i32."""
    bits = mask_bits(builder, mask)
    return bits if builder.lanes == 32 else builder.name(f"zext i{builder.lanes} {bits} to i32")


def narrow_mask(builder: Builder, mask: str, flags: str) -> str:
    """The lanes of a mask in which a vector of i1 is true."""
    taken = builder.name(f"and {builder.vector_type('i1')} {mask}, {flags}")
    bits = _known(builder, mask)
    if bits is not None:
        some = mask_bits(builder, flags)
        builder.bits[taken] = builder.name(f"and i{builder.lanes} {bits}, {some}")
    return taken


def split_mask(builder: Builder, mask: str, flags: str) -> tuple[str, str]:
    """The lanes of a mask in which a vector of i1 is true, and the others."""
    type_ = builder.vector_type("i1")
    taken = narrow_mask(builder, mask, flags)
    inverse = builder.name(f"xor {type_} {flags}, splat (i1 true)")
    other = builder.name(f"and {type_} {mask}, {inverse}")
    bits = _known(builder, mask)
    if bits is not None:
        others = builder.name(f"xor i{builder.lanes} {bits}, {builder.bits[taken]}")
        builder.bits[other] = others
    return taken, other


def new_mask(builder: Builder, place: str, *, is_vector: bool = False) -> None:
    """Make a place for a mask, and store a mask without lanes there."""
    if is_vector:
        builder.vector_masks.add(place)
    builder.allocations.append(f"  {place} = alloca {_type(builder, place)}")
    store_mask(builder, NOBODY, place)


def load_mask(builder: Builder, place: str) -> str:
    """The mask at a place, as a vector of i1."""
    kept = builder.name(f"load {_type(builder, place)}, ptr {place}")
    return kept if place in builder.vector_masks else flags_of(builder, kept)


def store_mask(builder: Builder, mask: str, place: str) -> None:
    builder.emit(f"store {_type(builder, place)} {_kept(builder, mask, place)}, ptr {place}")


def merge_mask(builder: Builder, mask: str, place: str) -> None:
    """Add lanes to the mask at a place."""
    type_, more = _type(builder, place), _kept(builder, mask, place)
    before = builder.name(f"load {type_}, ptr {place}")
    builder.emit(f"store {type_} {builder.name(f'or {type_} {before}, {more}')}, ptr {place}")


def _known(builder: Builder, mask: str) -> str | None:
    return _CONSTANT.get(mask) or builder.bits.get(mask)


def _type(builder: Builder, place: str) -> str:
    return builder.vector_type("i1") if place in builder.vector_masks else f"i{builder.lanes}"


def _kept(builder: Builder, mask: str, place: str) -> str:
    return mask if place in builder.vector_masks else mask_bits(builder, mask)
