"""Cellar, jit. Accesses with an index of its own in each lane, where a run was likely.

If a varying index does not count up from lane to lane, the access is a gather or scatter
(`coalescing`). That is rare, so each kind of access has a function, made at its first use, which
includes the bounds check. The address of lane i is base + scale * extend(index of lane i).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.access_descriptors import read_window
from cudasync.softgpu.jit.memory.serial_gather_scatter import by_mover
from cudasync.softgpu.jit.vector_ir.mask_vectors import flags_call

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.uniformity import Shape


def indexed_function(
    builder: Builder, what: str, bits: int, count: int, shape: Shape, *, is_checked: bool
) -> str:
    """The function for "load" or "store" of `count` elements of `bits` bits in each lane."""
    sign = "s" if shape.is_signed else "u"
    checked = ".checked" if is_checked else ""
    lanes = builder.lanes
    name = f"@cudasync.{what}.each.{count}.v{lanes}i{bits}.{sign}.x{shape.scale}{checked}"
    if name not in builder.functions:
        text = Text(builder, bits, count, shape)
        builder.functions[name] = "\n".join(
            [
                f"define i1 {name}(ptr %job, ptr %row, i64 %base, <{lanes} x i32> %index,",
                "    i32 %mask, ptr %values) {",
                "entry:",
                f"  %some = {'add i32 0, ' if lanes == 32 else 'trunc i32 '}%mask"
                f"{'' if lanes == 32 else f' to i{lanes}'}",
                f"  %active = {flags_call(lanes, '%some')}",
                *text.addresses(),
                *(text.checks() if is_checked else ["  br label %go"]),
                "go:",
                *(text.gather() if what == "load" else text.one_by_one("scatter")),
                "  ret i1 true",
                "}",
            ]
        )
    return name


class Text:
    """Pieces of the function's text."""

    def __init__(self, builder: Builder, bits: int, count: int, shape: Shape) -> None:
        self._builder = builder
        self._lanes = lanes = builder.lanes
        self._bits = bits
        self._count = count
        self._shape = shape
        self._narrow, self._wide = f"<{lanes} x i32>", f"<{lanes} x i64>"
        self._extend = "sext" if shape.is_signed else "zext"

    def addresses(self, *, is_lifted: bool = False) -> list[str]:
        """Store all addresses in memory; if `is_lifted`, the %lifted lanes have %amount added."""
        wide = self._wide
        lift = [
            *self._spread("amounts", wide, "i64 %amount"),
            f"  %more = select <{self._lanes} x i1> %lifted, {wide} %amounts,"
            f" {wide} zeroinitializer",
            f"  %all = add {wide} %line, %more",
        ]
        return [
            f"  %addresses = alloca {wide}, align 64",
            f"  %index.wide = {self._extend} {self._narrow} %index to {wide}",
            f"  %scaled = mul {wide} %index.wide, splat (i64 {self._shape.scale})",
            *self._spread("bases", wide, "i64 %base"),
            f"  %{'line' if is_lifted else 'all'} = add {wide} %scaled, %bases",
            *(lift if is_lifted else []),
            f"  store {wide} %all, ptr %addresses, align 64",
        ]

    def checks(self) -> list[str]:
        """The quick check, and the check of each lane."""
        size = self._bits * self._count // 8
        lines = [read_window()]
        for kind, idle in self._extremes():
            end = "low" if kind.endswith("min") else "high"
            full = f"@llvm.vector.reduce.{kind}.v{self._lanes}i32"
            self._builder.declarations.add(f"declare i32 {full}({self._narrow})")
            lines += [
                f"  %{end}.lanes = select <{self._lanes} x i1> %active, {self._narrow} %index,"
                f" {self._narrow} splat (i32 {idle})",
                f"  %{end}.index = call i32 {full}({self._narrow} %{end}.lanes)",
                f"  %{end}.wide = {self._extend} i32 %{end}.index to i64",
                f"  %{end}.scaled = mul i64 %{end}.wide, {self._shape.scale}",
                f"  %{end}.byte = add i64 %{end}.scaled, %base",
                f"  %{end}.relative = sub i64 %{end}.byte, %window.start",
            ]
        first, last = ("low", "high") if self._shape.scale > 0 else ("high", "low")
        return [
            *lines,
            f"  %behind = add i64 %{last}.relative, {size}",
            f"  %is.in = icmp ult i64 %{first}.relative, %window.length",
            "  %fits = icmp ule i64 %behind, %window.length",
            "  %inside = and i1 %is.in, %fits",
            *self._alignment(size),
            "  %is.quick = and i1 %inside, %is.aligned",
            "  br i1 %is.quick, label %go, label %look",
            "look:",
            "  %is.right = call i1 @cudasync.check(ptr %job, ptr %row, ptr %addresses, i32 %mask)",
            "  br i1 %is.right, label %go, label %wrong",
            "wrong:",
            "  ret i1 false",
        ]

    def _extremes(self) -> list[tuple[str, int]]:
        if self._shape.is_signed:
            return [("smin", (1 << 31) - 1), ("smax", -(1 << 31))]
        return [("umin", -1), ("umax", 0)]

    def _alignment(self, size: int) -> list[str]:
        if self._shape.scale % size == 0:
            odd = [f"  %odd = and i64 %base, {size - 1}"]
        else:
            full = f"@llvm.vector.reduce.or.v{self._lanes}i64"
            self._builder.declarations.add(f"declare i64 {full}({self._wide})")
            odd = [
                f"  %there = select <{self._lanes} x i1> %active, {self._wide} %all,"
                f" {self._wide} zeroinitializer",
                f"  %together = call i64 {full}({self._wide} %there)",
                f"  %odd = and i64 %together, {size - 1}",
            ]
        return [*odd, "  %is.aligned = icmp eq i64 %odd, 0"]

    def one_by_one(self, what: str) -> list[str]:
        """Move lane after lane, by the addresses in memory."""
        return by_mover(self._builder, what, self._bits, self._count, self._lanes)

    def gather(self) -> list[str]:
        """Gather by an instruction where there is one; zero in inactive lanes."""
        if self._bits < 32:
            return self.one_by_one("gather")
        lanes, bits = self._lanes, self._bits
        vector, pointers = f"<{lanes} x i{bits}>", f"<{lanes} x ptr>"
        full = f"@llvm.masked.gather.v{lanes}i{bits}.v{lanes}p0"
        self._builder.declarations.add(
            f"declare {vector} {full}({pointers}, <{lanes} x i1>, {vector})"
        )
        scale = self._shape.scale
        # Unsigned indices become signed ones with a moved base, see `gather_scatter`.
        shift = 0 if self._shape.is_signed else 1 << 31
        lines = [f"  %signed = xor {self._narrow} %index, splat (i32 {-shift})"]
        for n in range(self._count):
            offset = n * bits // 8
            if scale in (1, 2, 4, 8):
                lines += [
                    f"  %base.{n} = add i64 %base, {offset + scale * shift}",
                    f"  %start.{n} = inttoptr i64 %base.{n} to ptr",
                    f"  %each.{n} = getelementptr [{scale} x i8], ptr %start.{n},"
                    f" {self._narrow} %signed",
                ]
            else:
                lines += [
                    f"  %starts.{n} = inttoptr {self._wide} %all to {pointers}",
                    f"  %each.{n} = getelementptr i8, {pointers} %starts.{n}, i64 {offset}",
                ]
            lines += [
                f"  %found.{n} = call {vector} {full}({pointers} align 1 %each.{n},"
                f" <{lanes} x i1> %active, {vector} zeroinitializer)",
                f"  %place.{n} = getelementptr {vector}, ptr %values, i32 {n}",
                f"  store {vector} %found.{n}, ptr %place.{n}, align 64",
            ]
        return lines

    def _spread(self, name: str, vector: str, scalar: str) -> list[str]:
        return [
            f"  %{name}.one = insertelement {vector} poison, {scalar}, i32 0",
            f"  %{name} = shufflevector {vector} %{name}.one, {vector} poison,"
            f" {self._narrow} zeroinitializer",
        ]
