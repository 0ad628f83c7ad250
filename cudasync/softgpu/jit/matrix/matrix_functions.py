"""Cellar, jit. Writes the function that computes one form of matrix product for a whole warp.

The function takes the registers of all lanes in memory, and unpacks them into plain matrices of the
type of computation. It computes row by row with vectors as wide as a row, and packs the results
into the registers of D. `matrix_arithmetic` says how sums are rounded: `aligned_blocks` computes
those of tensor cores. Sums of f64 begin with C and add products by rising k, each by a fused
multiply-add. Sums of integers are exact, and C is added last.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.arithmetic.rounding_modes import MODES
from cudasync.softgpu.jit.matrix.aligned_blocks import Factor, Lines, block, canonical, split
from cudasync.softgpu.semantics.matrix_arithmetic import arithmetic_of
from cudasync.softgpu.semantics.matrix_fragments import Fragment, fragment

if TYPE_CHECKING:
    from cudasync.softgpu.semantics.matrix_forms import Form

_TYPES = {"f32": "float", "f64": "double", "s32": "i32"}
_SUFFIX = {"float": "f32", "double": "f64"}
# Lines that turn the bits of an element, %raw or a name derived from it, into the number %value.
_HALF = ["%half = bitcast i16 %raw to half", "%value = fpext half %half to float"]
_E5M2 = ["%wide = zext i8 %raw to i16", "%bits = shl i16 %wide, 8", *_HALF]
_CONVERSIONS = {
    "f16": ("i16", _HALF),
    "bf16": (
        "i16",
        [
            "%wide = zext i16 %raw to i32",
            "%bits = shl i32 %wide, 16",
            "%value = bitcast i32 %bits to float",
        ],
    ),
    "tf32": ("i32", ["%bits = and i32 %raw, -8192", "%value = bitcast i32 %bits to float"]),
    "f32": ("i32", ["%value = bitcast i32 %raw to float"]),
    "f64": ("i64", ["%value = bitcast i64 %raw to double"]),
    "e5m2": ("i8", [line.replace("i16 %raw", "i16 %bits") for line in _E5M2]),
    # The exponent's bias is 7, and 15 for halves; all ones is the only NaN.
    "e4m3": (
        "i8",
        [
            "%size = and i8 %raw, 127",
            "%wide = zext i8 %size to i16",
            "%bits = shl i16 %wide, 7",
            "%half = bitcast i16 %bits to half",
            "%single = fpext half %half to float",
            "%scaled = fmul float %single, 2.560000e+02",
            "%is.nan = icmp eq i8 %size, 127",
            "%number = select i1 %is.nan, float 0x7FF8000000000000, float %scaled",
            "%opposite = fneg float %number",
            "%is.negative = icmp slt i8 %raw, 0",
            "%value = select i1 %is.negative, float %opposite, float %number",
        ],
    ),
    "s8": ("i8", ["%value = sext i8 %raw to i32"]),
    "u8": ("i8", ["%value = zext i8 %raw to i32"]),
    "s4": ("i4", ["%value = sext i4 %raw to i32"]),
    "u4": ("i4", ["%value = zext i4 %raw to i32"]),
    "s32": ("i32", ["%value = or i32 %raw, 0"]),
    "b1": ("i32", ["%value = or i32 %raw, 0"]),
}


@dataclass(frozen=True, slots=True)
class MatrixCode:
    """`text` defines the function `name`, which takes pointers to the registers of A, B, C, D."""

    name: str
    text: str
    declarations: frozenset[str]


def write_code(form: Form) -> MatrixCode | None:
    """The function for a form; None if this machine lacks the rounding mode."""
    name = f"@cudasync.{form.name}"
    writer = _Writer(name, form)
    if form.rounding != "rn" and writer.modes is None:
        return None
    writer.write()
    attributes = "noinline optnone strictfp" if form.rounding != "rn" else "noinline"
    text = "\n".join(
        [
            *writer.constants,
            f"define void {name}(ptr %a, ptr %b, ptr %c, ptr %d) {attributes} {{",
            "entry:",
            *writer.lines,
            "}",
            "",
        ]
    )
    return MatrixCode(name, text, frozenset(writer.declarations))


class _Writer:
    """The text of one function; `_at` is the label of the current block."""

    def __init__(self, name: str, form: Form) -> None:
        self._name = name
        self._form = form
        self._held = _TYPES[form.computes_in]
        self._arithmetic = arithmetic_of(form)
        self.modes = MODES.get(platform.machine())
        self.lines: list[str] = []
        self.constants: list[str] = []
        self.declarations: set[str] = set()
        self._at = "entry"

    def write(self) -> None:
        form = self._form
        batches = form.batches
        sizes = {"a": form.m * form.k, "b": form.k * form.n}
        for operand in ("a", "b", "c", "d"):
            count = batches * sizes.get(operand, form.m * form.n)
            self._line(f"%{operand}.matrix = alloca [{count} x {self._held}], align 64")
            if self._is_split(operand):
                self._line(f"%{operand}.exponents = alloca [{count} x i32], align 64")
        for operand in ("a", "b", "c"):
            self._take_apart(operand)
        self._multiply()
        self._put_together()
        self._line("ret void")

    def _is_split(self, operand: str) -> bool:
        """Whether a matrix is held as fractions and exponents, in two arrays."""
        sums = self._arithmetic
        is_aligned = sums is not None and bool(sums.blocks)
        return is_aligned and (operand in "ab" or (operand == "c" and not sums.is_c_last))

    def _line(self, text: str) -> None:
        self.lines.append("  " + text)

    def _label(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._at = label

    def _loop(self, label: str, count: int, body: list[str]) -> None:
        """A loop of one block that runs `body` for %<label>.index from 0 to count."""
        before = self._at
        self._line(f"br label %{label}.next")
        self._label(f"{label}.next")
        index = f"%{label}.index"
        self._line(f"{index} = phi i64 [0, %{before}], [{index}.following, %{label}.next]")
        for line in body:
            self._line(line)
        self._line(f"{index}.following = add i64 {index}, 1")
        self._line(f"{index}.more = icmp ult i64 {index}.following, {count}")
        self._line(f"br i1 {index}.more, label %{label}.next, label %{label}.done")
        self._label(f"{label}.done")

    def _table(self, operand: str, held: Fragment, rows: int, columns: int) -> tuple[str, int]:
        """A constant that maps each element of the matrix to its element in the registers."""
        where = held.where()
        elements = [
            where[product, row, column]
            for product in range(self._form.batches)
            for row in range(rows)
            for column in range(columns)
        ]
        table = f"{self._name}.{operand}"
        words = ", ".join(f"i16 {element}" for element in elements)
        self.constants.append(f"{table} = private constant [{len(elements)} x i16] [{words}]")
        return table, len(elements)

    def _find(self, label: str, table: str) -> list[str]:
        """Lines for %<label>.element, the current element's place in the registers."""
        return [
            f"%{label}.entry = getelementptr i16, ptr {table}, i64 %{label}.index",
            f"%{label}.short = load i16, ptr %{label}.entry",
            f"%{label}.element = zext i16 %{label}.short to i64",
        ]

    def _take_apart(self, operand: str) -> None:
        """Unpack registers into a matrix by rows."""
        form, held = self._form, self._held
        rows, columns = {"a": (form.m, form.k), "b": (form.k, form.n)}.get(
            operand, (form.m, form.n)
        )
        type_ = form.types[operand]
        table, count = self._table(operand, fragment(form, operand), rows, columns)
        raw, conversion = _CONVERSIONS[type_]
        body = self._find(operand, table)
        if raw == "i4":
            body += [
                f"%{operand}.byte = lshr i64 %{operand}.element, 1",
                f"%{operand}.at = getelementptr i8, ptr %{operand}, i64 %{operand}.byte",
                f"%{operand}.two = load i8, ptr %{operand}.at",
                f"%{operand}.odd = trunc i64 %{operand}.element to i1",
                f"%{operand}.high = lshr i8 %{operand}.two, 4",
                f"%{operand}.one = select i1 %{operand}.odd, i8 %{operand}.high, i8 %{operand}.two",
                f"%{operand}.raw = trunc i8 %{operand}.one to i4",
            ]
        else:
            body += [
                f"%{operand}.at = getelementptr {raw}, ptr %{operand}, i64 %{operand}.element",
                f"%{operand}.raw = load {raw}, ptr %{operand}.at",
            ]
        body += [line.replace("%", f"%{operand}.") for line in conversion]
        value = f"%{operand}.value"
        if self._is_split(operand):
            text = Lines(operand)
            value, exponent = split(text, value, type_, is_scaled=operand != "b")
            body += [
                *text.lines,
                f"%{operand}.beside = getelementptr i32, ptr %{operand}.exponents,"
                f" i64 %{operand}.index",
                f"store i32 {exponent}, ptr %{operand}.beside",
            ]
        body += [
            f"%{operand}.to = getelementptr {held}, ptr %{operand}.matrix, i64 %{operand}.index",
            f"store {held} {value}, ptr %{operand}.to",
        ]
        self._loop(operand, count, body)

    def _multiply(self) -> None:
        form, held = self._form, self._held
        row = f"<{form.n} x {held}>"
        body = [
            f"%row.batch = udiv i64 %row.index, {form.m}",
            f"%row.a.start = mul i64 %row.index, {form.k}",
            f"%row.b.start = mul i64 %row.batch, {form.k * form.n}",
            f"%row.c.start = mul i64 %row.index, {form.n}",
            f"%row.c.at = getelementptr {held}, ptr %c.matrix, i64 %row.c.start",
            f"%row.d.at = getelementptr {held}, ptr %d.matrix, i64 %row.c.start",
            f"%row.c = load {row}, ptr %row.c.at, align 4",
        ]
        for step in range(form.k):
            body += self._factors(step, "x", "y", held, "matrix")
        if self._arithmetic is not None:
            text = Lines("row.text", form.n)
            result = self._round_as_tensor_cores(text, body)
            body += text.lines
            self.declarations |= text.declarations
        else:
            result = "zeroinitializer" if held == "i32" else "%row.c"
            for step in range(form.k):
                body += self._accumulate(step, result)
                result = f"%row.sum.{step}"
        if held == "i32":
            body += self._add_last(result)
            result = "%row.total"
        body.append(f"store {row} {result}, ptr %row.d.at, align 4")
        if form.rounding != "rn":
            self._round(form.rounding)
        self._loop("row", form.batches * form.m, body)
        if form.rounding != "rn":
            self._round("rn")

    def _factors(self, step: int, x: str, y: str, type_: str, array: str) -> list[str]:
        """Lines for %row.<x>.<step>, an element of A in all lanes, and for %row.<y>.<step> of B."""
        form = self._form
        row = f"<{form.n} x {type_}>"
        return [
            f"%row.{x}.number.{step} = add i64 %row.a.start, {step}",
            f"%row.{x}.at.{step} = getelementptr {type_}, ptr %a.{array},"
            f" i64 %row.{x}.number.{step}",
            f"%row.{x}.one.{step} = load {type_}, ptr %row.{x}.at.{step}",
            f"%row.{x}.first.{step} = insertelement {row} poison, {type_} %row.{x}.one.{step},"
            " i32 0",
            f"%row.{x}.{step} = shufflevector {row} %row.{x}.first.{step}, {row} poison,"
            f" <{form.n} x i32> zeroinitializer",
            f"%row.{y}.number.{step} = add i64 %row.b.start, {step * form.n}",
            f"%row.{y}.at.{step} = getelementptr {type_}, ptr %b.{array},"
            f" i64 %row.{y}.number.{step}",
            f"%row.{y}.{step} = load {row}, ptr %row.{y}.at.{step}, align 4",
        ]

    def _round_as_tensor_cores(self, text: Lines, body: list[str]) -> str:
        """The row's result; loads of exponents are added to `body`."""
        form, sums = self._form, self._arithmetic
        assert sums is not None
        steps = range(form.k)
        if not sums.blocks:
            result = text.binary("fmul", "float", "%row.x.0", "%row.y.0")
            for step in steps[1:]:
                text.lines += self._accumulate(step, result)
                result = f"%row.sum.{step}"
        else:
            for step in steps:
                body += self._factors(step, "power", "scale", "i32", "exponents")
            result, carried = "", None
            if not sums.is_c_last:
                row = f"<{form.n} x i32>"
                body += [
                    "%row.c.beside = getelementptr i32, ptr %c.exponents, i64 %row.c.start",
                    f"%row.c.exponent = load {row}, ptr %row.c.beside, align 4",
                ]
                carried = Factor("%row.c", "%row.c.exponent")
            for each in sums.blocks:
                if result:
                    carried = split(text, result, sums.accumulator, is_scaled=True)
                products = [
                    (
                        Factor(f"%row.x.{step}", f"%row.power.{step}"),
                        Factor(f"%row.y.{step}", f"%row.scale.{step}"),
                    )
                    for step in each
                ]
                result = block(text, products, carried, sums.accumulator)
        if sums.is_c_last:
            result = text.binary("fadd", "float", result, "%row.c")
        return canonical(text, result)

    def _accumulate(self, step: int, total: str) -> list[str]:
        form, held = self._form, self._held
        row = f"<{form.n} x {held}>"
        x, y, result = f"%row.x.{step}", f"%row.y.{step}", f"%row.sum.{step}"
        if form.combine:
            self.declarations.add(f"declare {row} @llvm.ctpop.v{form.n}i32({row})")
            return [
                f"%row.both.{step} = {form.combine} {row} {x}, {y}",
                f"%row.ones.{step} = call {row} @llvm.ctpop.v{form.n}i32({row} %row.both.{step})",
                f"{result} = add {row} {total}, %row.ones.{step}",
            ]
        if held == "i32":
            product = f"%row.product.{step}"
            return [f"{product} = mul {row} {x}, {y}", f"{result} = add {row} {total}, {product}"]
        suffix = f"v{form.n}{_SUFFIX[held]}"
        if form.rounding != "rn":
            name = f"@llvm.experimental.constrained.fma.{suffix}"
            self.declarations.add(f"declare {row} {name}({row}, {row}, {row}, metadata, metadata)")
            how = 'metadata !"round.dynamic", metadata !"fpexcept.strict"'
            call = f"call {row} {name}({row} {x}, {row} {y}, {row} {total}, {how}) strictfp"
            return [f"{result} = {call}"]
        name = f"@llvm.fma.{suffix}"
        self.declarations.add(f"declare {row} {name}({row}, {row}, {row})")
        return [f"{result} = call {row} {name}({row} {x}, {row} {y}, {row} {total})"]

    def _add_last(self, total: str) -> list[str]:
        """Add C; products of at most 64 bytes or 256 bits cannot overflow before that."""
        form = self._form
        row = f"<{form.n} x i32>"
        if not form.is_saturating:
            return [f"%row.total = add {row} {total}, %row.c"]
        name = f"@llvm.sadd.sat.v{form.n}i32"
        self.declarations.add(f"declare {row} {name}({row}, {row})")
        return [f"%row.total = call {row} {name}({row} {total}, {row} %row.c)"]

    def _round(self, mode: str) -> None:
        assert self.modes is not None
        self.declarations.add("declare i32 @fesetround(i32)")
        self._line(f"call i32 @fesetround(i32 {self.modes[mode]}) strictfp")

    def _put_together(self) -> None:
        """Pack the matrix D by rows into registers."""
        form, held = self._form, self._held
        type_ = form.types["d"]
        table, count = self._table("d", fragment(form, "d"), form.m, form.n)
        body = self._find("d", table)
        body += [
            f"%d.from = getelementptr {held}, ptr %d.matrix, i64 %d.index",
            f"%d.value = load {held}, ptr %d.from",
        ]
        stored = held
        if type_ == "f16":
            body.append("%d.half = fptrunc float %d.value to half")
            stored = "half"
        body += [
            f"%d.at = getelementptr {stored}, ptr %d, i64 %d.element",
            f"store {stored} {'%d.half' if stored == 'half' else '%d.value'}, ptr %d.at",
        ]
        self._loop("d", count, body)
