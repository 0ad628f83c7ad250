"""Cellar, jit. Loads and stores with one address for all lanes, or with one for each lane.

Addresses are not checked here: see `coalescing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.memory.serial_gather_scatter import mover
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.uniformity import Kind
from cudasync.softgpu.jit.vector_ir.values import Value, bits_of, suffix, uniform

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_INVARIANT = ", !invariant.load !0"


def _pointer(lowering: Lowering, address: Value, offset: int) -> str:
    builder = lowering.builder
    start = builder.name(f"inttoptr i64 {address.text} to ptr")
    return builder.name(f"getelementptr i8, ptr {start}, i64 {offset}")


def load_once(
    lowering: Lowering, address: Value, offset: int, type_: str, *, is_constant: bool
) -> Value:
    """One load for all lanes; LLVM may hoist the load of a constant."""
    pointer = _pointer(lowering, address, offset)
    invariant = _INVARIANT if is_constant else ""
    return uniform(type_, lowering.builder.name(f"load {type_}, ptr {pointer}, align 1{invariant}"))


def store_once(lowering: Lowering, address: Value, offset: int, value: Value) -> None:
    """One store for all lanes, which store the same value."""
    pointer = _pointer(lowering, address, offset)
    lowering.builder.emit(f"store {value.type} {value.text}, ptr {pointer}, align 1")


def _pointers(lowering: Lowering, address: Value, offset: int) -> str:
    """A vector of pointers."""
    builder = lowering.builder
    pointers = builder.vector_type("ptr")
    if address.shape.kind is not Kind.WIDE or address.shape.scale not in (1, 2, 4, 8):
        plain = builder.vector(address)
        start = builder.name(f"inttoptr {builder.vector_type('i64')} {plain} to {pointers}")
        if not offset:
            return start
        return builder.name(f"getelementptr i8, {pointers} {start}, i64 {offset}")
    # Gather instructions take a signed 32-bit index. An unsigned index becomes signed by flipping
    # its sign bit and moving the base by the same amount.
    scale = address.shape.scale
    index = builder.vector(builder.wide_index(address))
    narrow = builder.vector_type("i32")
    if not address.shape.is_signed:
        index = builder.name(f"xor {narrow} {index}, splat (i32 {-(2**31)})")
        offset += scale << 31
    base = builder.name(f"add i64 {address.text}, {offset}")
    start = builder.name(f"inttoptr i64 {base} to ptr")
    return builder.name(f"getelementptr i{8 * scale}, ptr {start}, {narrow} {index}")


def gather(lowering: Lowering, address: Value, offset: int, type_: str) -> str:
    """The values at the addresses of active lanes; zero in other lanes."""
    builder = lowering.builder
    vector, flags = builder.vector_type(type_), builder.vector_type("i1")
    if bits_of(type_) < 32:
        place = builder.allocate(vector)
        builder.emit(f"store {vector} zeroinitializer, ptr {place}, align 64")
        _move(lowering, "gather", address, offset, type_, place)
        return builder.name(f"load {vector}, ptr {place}, align 64")
    pointers = builder.vector_type("ptr")
    full = f"@llvm.masked.gather.v{builder.lanes}{suffix(type_)}.v{builder.lanes}p0"
    builder.declarations.add(f"declare {vector} {full}({pointers}, {flags}, {vector})")
    return builder.name(
        f"call {vector} {full}({pointers} align 1 {_pointers(lowering, address, offset)},"
        f" {flags} {lowering.mask}, {vector} zeroinitializer)"
    )


def scatter(lowering: Lowering, address: Value, offset: int, type_: str, text: str) -> None:
    """Write the vector `text` to each active lane's address, in the order of lanes."""
    builder = lowering.builder
    vector = builder.vector_type(type_)
    place = builder.allocate(vector)
    builder.emit(f"store {vector} {text}, ptr {place}, align 64")
    _move(lowering, "scatter", address, offset, type_, place)


def _move(
    lowering: Lowering, what: str, address: Value, offset: int, type_: str, place: str
) -> None:
    builder = lowering.builder
    wide = builder.vector_type("i64")
    addresses = builder.allocate(wide)
    builder.emit(f"store {wide} {builder.vector(address)}, ptr {addresses}, align 64")
    word = mask_word(builder, lowering.mask)
    function = mover(builder, what, bits_of(type_))
    builder.emit(f"call void {function}(ptr {addresses}, i64 {offset}, ptr {place}, i32 {word})")
