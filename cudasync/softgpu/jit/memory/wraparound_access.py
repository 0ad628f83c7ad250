"""Cellar, jit. Accesses with lanes that are lifted out of line, see `wraparound_indices`.

Such accesses are rare. So each kind has a function, made at its first use, which computes all
addresses, checks them, and moves lane after lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.addressing.memcheck import own_row
from cudasync.softgpu.jit.memory.indexed_access import Text
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_word
from cudasync.softgpu.jit.vector_ir.mask_vectors import flags_call
from cudasync.softgpu.jit.vector_ir.values import bits_of, varying

if TYPE_CHECKING:
    from cudasync.softgpu.jit.addressing.address_spaces import Place
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
    from cudasync.softgpu.jit.vector_ir.uniformity import Shape
    from cudasync.softgpu.jit.vector_ir.values import Value


def load_lifted(lowering: Lowering, where: Place, size: int, type_: str, count: int) -> list[Value]:
    """`count` elements of `size` bytes in each active lane, from a LIFTED address."""
    builder = lowering.builder
    memory, slots = _memory(builder, type_, count)
    _call(lowering, "load", where, size, type_, count, memory)
    vector = builder.vector_type(type_)
    return [varying(type_, builder.name(f"load {vector}, ptr {each}, align 64")) for each in slots]


def store_lifted(lowering: Lowering, where: Place, size: int, values: list[Value]) -> None:
    builder, type_ = lowering.builder, values[0].type
    memory, slots = _memory(builder, type_, len(values))
    vector = builder.vector_type(type_)
    for value, slot in zip(values, slots, strict=True):
        builder.emit(f"store {vector} {builder.vector(value)}, ptr {slot}, align 64")
    _call(lowering, "store", where, size, type_, len(values), memory)


def _memory(builder: Builder, type_: str, count: int) -> tuple[str, list[str]]:
    """Memory for the values of all lanes, and the start of each element's values."""
    vector = builder.vector_type(type_)
    memory = builder.allocate(vector, count)
    places = (f"getelementptr {vector}, ptr {memory}, i32 {n}" for n in range(count))
    return memory, [builder.name(place) for place in places]


def _call(
    lowering: Lowering, what: str, where: Place, size: int, type_: str, count: int, values: str
) -> None:
    builder, address = lowering.builder, where.address
    own = lowering.number()
    is_checked = lowering.settings.memcheck and where.checked is not None
    members = [(0, size * count, own)]
    group = lowering.groups.get(lowering.position)
    if group is not None:
        # The first access of the group checks for all.
        is_checked = is_checked and group.members[0].position == lowering.position
        members = [(m.offset, m.size, lowering.number(m.position)) for m in group.members]
    bits = bits_of(type_)
    function = _function(builder, what, bits, count, address.shape, is_checked=is_checked)
    words = own_row(lowering, where.where, where.window, address, members)
    index = builder.vector(builder.wide_index(address))
    amount, lanes = address.lift
    is_right = builder.name(
        f"call i1 {function}(ptr %job, ptr {words}, i64 {address.text},"
        f" {builder.vector_type('i32')} {index}, i64 {amount}, i{builder.lanes} {lanes},"
        f" i32 {mask_word(builder, lowering.mask)}, ptr {values})"
    )
    went = builder.fresh("went")
    builder.emit(f"br i1 {is_right}, label %{went}, label %fault")
    builder.label(went)


def _function(
    builder: Builder, what: str, bits: int, count: int, shape: Shape, *, is_checked: bool
) -> str:
    lanes = builder.lanes
    sign, checked = "s" if shape.is_signed else "u", ".checked" if is_checked else ""
    name = f"@cudasync.{what}.lifted.{count}.v{lanes}i{bits}.{sign}.x{shape.scale}{checked}"
    if name not in builder.functions:
        text = Text(builder, bits, count, shape)
        look = (
            "  %is.right = call i1 @cudasync.check(ptr %job, ptr %row, ptr %addresses, i32 %mask)"
        )
        checks = [look, "  br i1 %is.right, label %go, label %wrong", "wrong:", "  ret i1 false"]
        builder.functions[name] = "\n".join(
            [
                f"define i1 {name}(ptr %job, ptr %row, i64 %base, <{lanes} x i32> %index,",
                f"    i64 %amount, i{lanes} %lanes, i32 %mask, ptr %values) {{",
                "entry:",
                f"  %lifted = {flags_call(lanes, '%lanes')}",
                *text.addresses(is_lifted=True),
                *(checks if is_checked else ["  br label %go"]),
                "go:",
                *text.one_by_one("gather" if what == "load" else "scatter"),
                "  ret i1 true",
                "}",
            ]
        )
    return name
