"""Cellar, jit. A run of memory that lanes share side by side, when the fast path is not for it.

Each kind of access has one function, made when it is first needed, that code calls when a warp
is partial, when the index wraps, or when the range is a new one: the inline part of an access
stays small. Lane i means base + scale * extend(index + i * stride). The function is right for
any of that; it returns false after it has reported a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.movers import mover
from cudasync.softgpu.jit.values import bits_of, suffix

if TYPE_CHECKING:
    from cudasync.softgpu.jit.builder import Builder


def run_function(
    builder: Builder, what: str, type_: str, count: int, *, is_signed: bool, is_checked: bool
) -> str:
    """The function for "load" or "store" of `count` elements of `type_` in each lane."""
    sign = "s" if is_signed else "u"
    checked = ".checked" if is_checked else ""
    name = f"@cudasync.{what}.{count}.v{builder.lanes}{suffix(type_)}.{sign}{checked}"
    if name not in builder.functions:
        lanes = builder.lanes
        builder.functions[name] = "\n".join(
            [
                f"define i1 {name}(ptr %job, ptr %cache, i64 %base, i32 %index,",
                "    i64 %scale, i32 %stride, i32 %mask, ptr %values, i64 %position, i32 %warp,",
                "    i32 %where, i64 %window.start, i64 %window.length) {",
                *_straightness(lanes, sign),
                *(_bounds(type_, count) if is_checked else ["  br label %route"]),
                *_addresses(lanes, sign),
                *(_look(type_, count) if is_checked else ["  br label %one.by.one"]),
                *_move(builder, what, type_, count),
                "}",
            ]
        )
    return name


def _straightness(lanes: int, sign: str) -> list[str]:
    """Whether the index wraps between the first lane and the last; the address of lane 0."""
    extend = "sext" if sign == "s" else "zext"
    return [
        "entry:",
        f"  %addresses = alloca <{lanes} x i64>, align 64",
        f"  %first.index = {extend} i32 %index to i64",
        "  %wide.stride = sext i32 %stride to i64",
        f"  %span = mul i64 %wide.stride, {lanes - 1}",
        "  %last.index = add i64 %first.index, %span",
        "  %last.narrow = trunc i64 %last.index to i32",
        f"  %last.again = {extend} i32 %last.narrow to i64",
        "  %is.straight = icmp eq i64 %last.index, %last.again",
        "  %first.offset = mul i64 %first.index, %scale",
        "  %start = add i64 %base, %first.offset",
        "  %step = mul i64 %wide.stride, %scale",
    ]


def _bounds(type_: str, count: int) -> list[str]:
    """The quick check of the active lanes of a straight run."""
    size = bits_of(type_) // 8 * count
    return [
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


def _addresses(lanes: int, sign: str) -> list[str]:
    """The address of each lane, in memory."""
    extend = "sext" if sign == "s" else "zext"
    wide, narrow = f"<{lanes} x i64>", f"<{lanes} x i32>"
    counting = ", ".join(f"i32 {lane}" for lane in range(lanes))

    def spread(name: str, vector: str, scalar: str) -> list[str]:
        return [
            f"  %{name}.one = insertelement {vector} poison, {scalar}, i32 0",
            f"  %{name} = shufflevector {vector} %{name}.one, {vector} poison,"
            f" {narrow} zeroinitializer",
        ]

    return [
        "crooked:",
        *spread("indices.start", narrow, "i32 %index"),
        *spread("indices.stride", narrow, "i32 %stride"),
        f"  %indices.step = mul {narrow} %indices.stride, <{counting}>",
        f"  %indices = add {narrow} %indices.start, %indices.step",
        f"  %indices.wide = {extend} {narrow} %indices to {wide}",
        *spread("scales", wide, "i64 %scale"),
        *spread("bases", wide, "i64 %base"),
        f"  %scaled = mul {wide} %indices.wide, %scales",
        f"  %all = add {wide} %scaled, %bases",
        f"  store {wide} %all, ptr %addresses, align 64",
    ]


def _look(type_: str, count: int) -> list[str]:
    """Look every lane up."""
    size = bits_of(type_) // 8 * count
    return [
        "  %is.right = call i1 @cudasync.check(ptr %job, ptr %cache, ptr %addresses, i32 1,",
        f"      i32 %mask, i64 0, i64 {size}, i64 %position, i32 %warp, i32 %where,",
        "      i64 %window.start, i64 %window.length)",
        "  br i1 %is.right, label %one.by.one, label %wrong",
        "wrong:",
        "  ret i1 false",
    ]


def _move(builder: Builder, what: str, type_: str, count: int) -> list[str]:
    """Move lanes one by one where their addresses are known; a straight run at once."""
    lanes = builder.lanes
    vector, flags = f"<{lanes} x {type_}>", f"<{lanes} x i1>"
    size = bits_of(type_) // 8
    routine = mover(builder, "gather" if what == "load" else "scatter", bits_of(type_))
    lines = ["one.by.one:"]
    for n in range(count):
        lines += [
            f"  %values.{n} = getelementptr {vector}, ptr %values, i32 {n}",
            f"  call void {routine}(ptr %addresses, i64 {n * size}, ptr %values.{n}, i32 %mask)",
        ]
    lines += ["  ret i1 true", "route:"]
    if count > 1:
        return [*lines, "  br label %crooked"]
    lines += ["  br i1 %is.straight, label %straight, label %crooked", "straight:"]
    narrow = "%mask" if lanes == 32 else "%mask.narrow"
    if lanes != 32:
        lines.append(f"  %mask.narrow = trunc i32 %mask to i{lanes}")
    lines += [
        f"  %active = bitcast i{lanes} {narrow} to {flags}",
        "  %pointer = inttoptr i64 %start to ptr",
    ]
    if what == "load":
        full = f"@llvm.masked.load.v{lanes}{suffix(type_)}.p0"
        builder.declarations.add(f"declare {vector} {full}(ptr, {flags}, {vector})")
        lines += [
            f"  %found = call {vector} {full}(ptr align 1 %pointer, {flags} %active,"
            f" {vector} zeroinitializer)",
            f"  store {vector} %found, ptr %values, align 64",
        ]
    else:
        full = f"@llvm.masked.store.v{lanes}{suffix(type_)}.p0"
        builder.declarations.add(f"declare void {full}({vector}, ptr, {flags})")
        lines += [
            f"  %given = load {vector}, ptr %values, align 64",
            f"  call void {full}({vector} %given, ptr align 1 %pointer, {flags} %active)",
        ]
    return [*lines, "  ret i1 true"]
