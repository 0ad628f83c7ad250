"""Cellar, jit. Runs of adjacent lanes in memory, where the fast path does not apply.

Each kind of access has one function, made at its first use. Code calls it if a warp is partial, if
the index wraps, or if the range is new. So the inline part of an access stays small. The
address of lane i is base + scale * extend(index + i * stride), see `access_descriptors`. The
function is correct in all these cases; it returns false after it has reported a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.access_descriptors import Word, read_window, read_word
from cudasync.softgpu.jit.memory.serial_gather_scatter import by_mover
from cudasync.softgpu.jit.vector_ir.mask_vectors import flags_call

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder


# The maximum number of lanes of a warp.
LANES = 32
# The bits of a run that are moved at once. LLVM's work grows with the text, so a loop moves them.
_CHUNK_BITS = 512


def run_function(builder: Builder, what: str, bits: int, count: int, *, is_checked: bool) -> str:
    """The function for "load" or "store" of `count` elements of `bits` bits in each lane.

    It takes the values of 32 lanes, however many lanes the warp has.
    """
    checked = ".checked" if is_checked else ""
    name = f"@cudasync.{what}.{count}.i{bits}{checked}"
    if name not in builder.functions:
        # Machines have masked moves for words of this size.
        moves_at_once = count == 1 and bits >= 32
        builder.functions[name] = "\n".join(
            [
                f"define i1 {name}(ptr %job, ptr %row, i64 %base, i32 %index, i32 %mask,",
                "    ptr %values) {",
                *_straightness(),
                *(_bounds(bits * count // 8) if is_checked else ["  br label %route"]),
                "route:",
                f"  br i1 {'%is.straight' if moves_at_once else 'false'}, label %straight,"
                " label %crooked",
                "crooked:",
                "  call void @cudasync.line(ptr %row, i64 %base, i32 %index, ptr %addresses)",
                *(_LOOK if is_checked else ["  br label %one.by.one"]),
                *_one_by_one(builder, what, bits, count),
                *(_at_once(builder, what, bits) if moves_at_once else ["straight:"]),
                "  ret i1 true",
                "}",
            ]
        )
    return name


def _straightness() -> list[str]:
    """Test whether the index wraps between the first lane and the last; address of lane 0."""
    return [
        "entry:",
        "  %addresses = alloca [32 x i64], align 64",
        read_word(Word.SCALE, "scale"),
        read_word(Word.STRIDE, "wide.stride"),
        read_word(Word.IS_SIGNED, "sign"),
        "  %is.signed = icmp ne i64 %sign, 0",
        "  %first.signed = sext i32 %index to i64",
        "  %first.unsigned = zext i32 %index to i64",
        "  %first.index = select i1 %is.signed, i64 %first.signed, i64 %first.unsigned",
        "  %span = mul i64 %wide.stride, 31",
        "  %last.index = add i64 %first.index, %span",
        "  %last.narrow = trunc i64 %last.index to i32",
        "  %last.signed = sext i32 %last.narrow to i64",
        "  %last.unsigned = zext i32 %last.narrow to i64",
        "  %last.again = select i1 %is.signed, i64 %last.signed, i64 %last.unsigned",
        "  %is.straight = icmp eq i64 %last.index, %last.again",
        "  %first.offset = mul i64 %first.index, %scale",
        "  %start = add i64 %base, %first.offset",
        "  %step = mul i64 %wide.stride, %scale",
    ]


def _bounds(size: int) -> list[str]:
    """The quick check of the active lanes of a straight run."""
    return [
        read_window(),
        "  br i1 %is.straight, label %bounds, label %crooked",
        "bounds:",
        "  %first.lane = call i32 @llvm.cttz.i32(i32 %mask, i1 false)",
        "  %idle.lanes = call i32 @llvm.ctlz.i32(i32 %mask, i1 false)",
        "  %last.lane = sub i32 31, %idle.lanes",
        "  %first.wide = zext i32 %first.lane to i64",
        "  %last.wide = zext i32 %last.lane to i64",
        "  %first.step = mul i64 %first.wide, %step",
        "  %last.step = mul i64 %last.wide, %step",
        "  %first.byte = add i64 %start, %first.step",
        "  %last.byte = add i64 %start, %last.step",
        "  %relative.a = sub i64 %first.byte, %window.start",
        "  %relative.b = sub i64 %last.byte, %window.start",
        f"  %behind.a = add i64 %relative.a, {size}",
        f"  %behind.b = add i64 %relative.b, {size}",
        "  %is.in.a = icmp ult i64 %relative.a, %window.length",
        "  %is.in.b = icmp ult i64 %relative.b, %window.length",
        "  %fits.a = icmp ule i64 %behind.a, %window.length",
        "  %fits.b = icmp ule i64 %behind.b, %window.length",
        "  %in = and i1 %is.in.a, %is.in.b",
        "  %fits = and i1 %fits.a, %fits.b",
        f"  %odd = and i64 %start, {size - 1}",
        "  %is.aligned = icmp eq i64 %odd, 0",
        "  %inside = and i1 %in, %fits",
        "  %is.quick = and i1 %inside, %is.aligned",
        "  br i1 %is.quick, label %route, label %crooked",
    ]


# Looks up every lane.
_LOOK = [
    "  %is.right = call i1 @cudasync.check(ptr %job, ptr %row, ptr %addresses, i32 %mask)",
    "  br i1 %is.right, label %one.by.one, label %wrong",
    "wrong:",
    "  ret i1 false",
]


def _one_by_one(builder: Builder, what: str, bits: int, count: int) -> list[str]:
    """Move lane after lane, by the addresses in memory."""
    moves = by_mover(builder, "gather" if what == "load" else "scatter", bits, count, LANES)
    return ["one.by.one:", *moves, "  ret i1 true"]


def _at_once(builder: Builder, what: str, bits: int) -> list[str]:
    """Move a straight run, some lanes at a time; a load has zero in inactive lanes."""
    width = min(LANES, _CHUNK_BITS // bits)
    vector, flags = f"<{width} x i{bits}>", f"<{width} x i1>"
    if what == "load":
        full = f"@llvm.masked.load.v{width}i{bits}.p0"
        builder.declarations.add(f"declare {vector} {full}(ptr, {flags}, {vector})")
        move = [
            f"  %found = call {vector} {full}(ptr align 1 %there, {flags} %active,"
            f" {vector} zeroinitializer)",
            f"  store {vector} %found, ptr %here, align 1",
        ]
    else:
        full = f"@llvm.masked.store.v{width}i{bits}.p0"
        builder.declarations.add(f"declare void {full}({vector}, ptr, {flags})")
        move = [
            f"  %given = load {vector}, ptr %here, align 1",
            f"  call void {full}({vector} %given, ptr align 1 %there, {flags} %active)",
        ]
    return [
        "straight:",
        "  %pointer = inttoptr i64 %start to ptr",
        "  br label %chunk",
        "chunk:",
        "  %lane = phi i32 [0, %straight], [%lane.next, %chunk]",
        "  %left = lshr i32 %mask, %lane",
        f"  %some = trunc i32 %left to i{width}",
        f"  %active = {flags_call(width, '%some')}",
        f"  %there = getelementptr i{bits}, ptr %pointer, i32 %lane",
        f"  %here = getelementptr i{bits}, ptr %values, i32 %lane",
        *move,
        f"  %lane.next = add i32 %lane, {width}",
        f"  %more = icmp ult i32 %lane.next, {LANES}",
        "  br i1 %more, label %chunk, label %done",
        "done:",
    ]
