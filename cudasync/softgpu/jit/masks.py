"""Cellar, jit. Masks of lanes that are kept from one node to another.

As a rule a mask is an integer of as many bits as there are lanes: that is what branches ask for,
and it takes no vector register. Where a node blends under its mask, a vector of i1 is better:
there and back again costs more instructions than packing to bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.softgpu.jit.builder import Builder

NOBODY = "zeroinitializer"


def new_mask(builder: Builder, place: str, *, is_vector: bool = False) -> None:
    """A place for a mask, with nobody in it."""
    if is_vector:
        builder.vector_masks.add(place)
    builder.allocations.append(f"  {place} = alloca {_type(builder, place)}")
    store_mask(builder, NOBODY, place)


def load_mask(builder: Builder, place: str) -> str:
    """The mask that is kept there, as a vector of i1."""
    kept = builder.name(f"load {_type(builder, place)}, ptr {place}")
    if place in builder.vector_masks:
        return kept
    return builder.name(f"bitcast i{builder.lanes} {kept} to {builder.vector_type('i1')}")


def store_mask(builder: Builder, mask: str, place: str) -> None:
    builder.emit(f"store {_type(builder, place)} {_kept(builder, mask, place)}, ptr {place}")


def merge_mask(builder: Builder, mask: str, place: str) -> None:
    """Add lanes to those that are there."""
    type_, more = _type(builder, place), _kept(builder, mask, place)
    before = builder.name(f"load {type_}, ptr {place}")
    builder.emit(f"store {type_} {builder.name(f'or {type_} {before}, {more}')}, ptr {place}")


def _type(builder: Builder, place: str) -> str:
    return builder.vector_type("i1") if place in builder.vector_masks else f"i{builder.lanes}"


def _kept(builder: Builder, mask: str, place: str) -> str:
    if place in builder.vector_masks:
        return mask
    if mask == NOBODY:
        return "0"
    return builder.name(f"bitcast {builder.vector_type('i1')} {mask} to i{builder.lanes}")
