"""Cellar, jit. Writes the function that computes one form of matrix product for a whole warp.

The function takes the registers of all lanes in memory, and unpacks them into plain matrices of the
type of computation. It computes line by line (`matrix_lines`), and packs the results into the
registers of D. Lines are rows of D, or columns if these are longer; then all matrices are held by
columns.

Where products are added in blocks, exponents lie beside the numbers. Unpacking finds whether all
numbers are near (`near_blocks`), which they nearly always are. Else each number of A, B and C is
replaced by its fraction, and another loop computes (`aligned_blocks`).
"""

from __future__ import annotations

import itertools
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.arithmetic.rounding_modes import MODES
from cudasync.softgpu.jit.matrix import near_blocks
from cudasync.softgpu.jit.matrix.aligned_blocks import Number, exponent_of, fraction_of
from cudasync.softgpu.jit.matrix.matrix_lines import MatrixLines
from cudasync.softgpu.jit.matrix.vector_text import VectorText
from cudasync.softgpu.semantics.matrix_arithmetic import arithmetic_of
from cudasync.softgpu.semantics.matrix_fragments import Fragment, fragment

if TYPE_CHECKING:
    from cudasync.softgpu.semantics.matrix_forms import Form

_TYPES = {"f32": "float", "f64": "double", "s32": "i32"}
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
        self._is_turned = form.m > form.n
        self.modes = MODES.get(platform.machine())
        self.lines: list[str] = []
        self.constants: list[str] = []
        self.declarations: set[str] = set()
        self._at = "entry"
        # The operands that are added in blocks.
        self._aligned = ""
        if self._arithmetic is not None and self._arithmetic.blocks:
            self._aligned = "ab" if self._arithmetic.is_c_last else "abc"

    def write(self) -> None:
        form = self._form
        batches = form.batches
        sizes = {"a": form.m * form.k, "b": form.k * form.n}
        for operand in ("a", "b", "c", "d"):
            count = batches * sizes.get(operand, form.m * form.n)
            self._line(f"%{operand}.matrix = alloca [{count} x {self._held}], align 64")
            if operand in self._aligned:
                self._line(f"%{operand}.exponents = alloca [{count} x i32], align 64")
        counts = {operand: self._take_apart(operand) for operand in "abc"}
        if self._aligned:
            self._choose(counts)
        else:
            self._multiply("line")
        self._put_together()
        self._line("ret void")

    def _line(self, text: str) -> None:
        self.lines.append("  " + text)

    def _label(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._at = label

    def _loop(self, label: str, count: int, body: list[str], joined: str = "") -> None:
        """A loop of one block that runs `body` for %<label>.index from 0 to count.

        %<label>.all is the bitwise or of the i32 `joined` over all trips, if there is one.
        """
        before = self._at
        self._line(f"br label %{label}.next")
        self._label(f"{label}.next")
        index = f"%{label}.index"
        self._line(f"{index} = phi i64 [0, %{before}], [{index}.following, %{label}.next]")
        if joined:
            self._line(f"%{label}.old = phi i32 [0, %{before}], [%{label}.all, %{label}.next]")
            body = [*body, f"%{label}.all = or i32 %{label}.old, {joined}"]
        for line in body:
            self._line(line)
        self._line(f"{index}.following = add i64 {index}, 1")
        self._line(f"{index}.more = icmp ult i64 {index}.following, {count}")
        self._line(f"br i1 {index}.more, label %{label}.next, label %{label}.done")
        self._label(f"{label}.done")

    def _table(self, operand: str, held: Fragment, rows: int, columns: int) -> tuple[str, int]:
        """A constant that maps each element of the matrix to its element in the registers."""
        where = held.where()
        sizes = (columns, rows) if self._is_turned else (rows, columns)
        elements = [
            where[product, *(reversed(place) if self._is_turned else place)]
            for product in range(self._form.batches)
            for place in itertools.product(*map(range, sizes))
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

    def _take_apart(self, operand: str) -> int:
        """Unpack registers into a matrix by lines; return the number of elements."""
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
        value, offset = f"%{operand}.value", ""
        if operand in self._aligned:
            text = VectorText(operand)
            number = Number(value, exponent_of(text, value, type_))
            offset = near_blocks.offset_of(text, number, is_factor=operand != "c")
            body += [
                *text.lines,
                f"%{operand}.beside = getelementptr i32, ptr %{operand}.exponents,"
                f" i64 %{operand}.index",
                f"store i32 {number.exponent}, ptr %{operand}.beside",
            ]
        body += [
            f"%{operand}.to = getelementptr {held}, ptr %{operand}.matrix, i64 %{operand}.index",
            f"store {held} {value}, ptr %{operand}.to",
        ]
        self._loop(operand, count, body, offset)
        return count

    def _choose(self, counts: dict[str, int]) -> None:
        """Multiply in one of two ways, depending on whether all numbers are near."""
        is_far = "false"
        for operand in self._aligned:
            most = near_blocks.offset_mask(is_factor=operand != "c")
            self._line(f"%{operand}.is.far = icmp ugt i32 %{operand}.all, {most}")
            self._line(f"%far.{operand} = or i1 {is_far}, %{operand}.is.far")
            is_far = f"%far.{operand}"
        self._line(f"br i1 {is_far}, label %far, label %near")
        self._label("near")
        self._multiply("near.line")
        self._line("br label %together")
        self._label("far")
        for operand in self._aligned:
            self._split(operand, counts[operand])
        self._multiply("far.line")
        self._line("br label %together")
        self._label("together")

    def _split(self, operand: str, count: int) -> None:
        """Replace the numbers of a matrix by their fractions."""
        label = f"split.{operand}"
        text = VectorText(label)
        number = Number(f"%{label}.value", f"%{label}.exponent")
        fraction = fraction_of(text, number, is_scaled=operand != "b")
        body = [
            f"%{label}.at = getelementptr float, ptr %{operand}.matrix, i64 %{label}.index",
            f"{number.value} = load float, ptr %{label}.at",
            f"%{label}.beside = getelementptr i32, ptr %{operand}.exponents, i64 %{label}.index",
            f"{number.exponent} = load i32, ptr %{label}.beside",
            *text.lines,
            f"store float {fraction}, ptr %{label}.at",
        ]
        self._loop(label, count, body)

    def _multiply(self, label: str) -> None:
        form = self._form
        lines = MatrixLines(form, self._held, label)
        body = lines.body(is_near=label.startswith("near"))
        self.declarations |= lines.declarations
        if form.rounding != "rn":
            self._round(form.rounding)
        self._loop(label, lines.count, body)
        if form.rounding != "rn":
            self._round("rn")

    def _round(self, mode: str) -> None:
        assert self.modes is not None
        self.declarations.add("declare i32 @fesetround(i32)")
        self._line(f"call i32 @fesetround(i32 {self.modes[mode]}) strictfp")

    def _put_together(self) -> None:
        """Pack the matrix D by lines into registers."""
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
