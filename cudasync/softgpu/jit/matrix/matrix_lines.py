"""Cellar, jit. The text that computes a line of a matrix product: a row of D, or a column.

Single elements of one factor are multiplied by lines of the other. `matrix_arithmetic` says how
sums are rounded. Sums of f64 begin with C and add products by rising k, each by a fused
multiply-add. Sums of integers are exact, and C is added last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.matrix import aligned_blocks, near_blocks
from cudasync.softgpu.jit.matrix.aligned_blocks import Number
from cudasync.softgpu.jit.matrix.vector_text import VectorText
from cudasync.softgpu.semantics.matrix_arithmetic import Arithmetic, arithmetic_of

if TYPE_CHECKING:
    from cudasync.softgpu.semantics.matrix_forms import Form

_SUFFIX = {"float": "f32", "double": "f64"}


class MatrixLines:
    """The body of the loop over lines, whose counter is %<label>.index.

    The matrices are %a.matrix and so on, of type `held`; where numbers are aligned, exponents are
    in %a.exponents.
    """

    def __init__(self, form: Form, held: str, label: str) -> None:
        self._form = form
        self._held = held
        self._label = label
        # A has the single elements, unless the matrices are turned.
        self._single, self._along = "ba" if form.m > form.n else "ab"
        self._lines_of_product, self._width = sorted((form.m, form.n))
        self.count = form.batches * self._lines_of_product
        self._text = VectorText(f"{label}.text", self._width)

    @property
    def declarations(self) -> set[str]:
        """The declarations of the functions that the body calls."""
        return self._text.declarations

    def body(self, *, is_near: bool) -> list[str]:
        """The lines; numbers are held as they are if all are near, else as fractions."""
        form, text = self._form, self._text
        text.lines += [
            f"%{self._label}.batch = udiv i64 %{self._label}.index, {self._lines_of_product}",
            f"%{self._label}.x = mul i64 %{self._label}.index, {form.k}",
            f"%{self._label}.y = mul i64 %{self._label}.batch, {form.k * self._width}",
            f"%{self._label}.c = mul i64 %{self._label}.index, {self._width}",
        ]
        sums = arithmetic_of(form)
        c = self._load("c", "c")
        factors = [(self._element(step), self._line(step)) for step in range(form.k)]
        if sums is None:
            result = self._exact_integers(factors, c) if self._held == "i32" else c
            if self._held == "double":
                result = self._fused(factors, result)
        elif sums.blocks:
            result = self._blocks(sums, factors, c, is_near=is_near)
        else:
            x, y = factors[0]
            result = self._fused(factors[1:], text.binary("fmul", "float", x, y))
        if sums is not None and sums.is_c_last:
            result = text.binary("fadd", "float", result, c)
        if sums is not None and (sums.is_c_last or not is_near):
            result = aligned_blocks.canonical(text, result)
        type_ = text.type(self._held)
        at = text.name(f"getelementptr {self._held}, ptr %d.matrix, i64 %{self._label}.c")
        text.lines.append(f"store {type_} {result}, ptr {at}, align 4")
        return text.lines

    # ---- Elements and lines in memory

    def _load(self, operand: str, start: str, first: int = 0, *, part: str = "matrix") -> str:
        """A line that begins `first` elements behind the start."""
        type_ = "i32" if part == "exponents" else self._held
        number = self._text.name(f"add i64 %{self._label}.{start}, {first}")
        at = self._text.name(f"getelementptr {type_}, ptr %{operand}.{part}, i64 {number}")
        return self._text.name(f"load {self._text.type(type_)}, ptr {at}, align 4")

    def _line(self, step: int, part: str = "matrix") -> str:
        return self._load(self._along, "y", step * self._width, part=part)

    def _element(self, step: int, part: str = "matrix") -> str:
        """A single element in all lanes."""
        text, type_ = self._text, "i32" if part == "exponents" else self._held
        number = text.name(f"add i64 %{self._label}.x, {step}")
        at = text.name(f"getelementptr {type_}, ptr %{self._single}.{part}, i64 {number}")
        one = text.name(f"load {type_}, ptr {at}")
        line = text.type(type_)
        first = text.name(f"insertelement {line} poison, {type_} {one}, i32 0")
        order = f"<{self._width} x i32> zeroinitializer"
        return text.name(f"shufflevector {line} {first}, {line} poison, {order}")

    # ---- Sums

    def _blocks(
        self, sums: Arithmetic, factors: list[tuple[str, str]], c: str, *, is_near: bool
    ) -> str:
        text = self._text
        products = [
            (
                Number(x, self._element(step, "exponents")),
                Number(y, self._line(step, "exponents")),
            )
            for step, (x, y) in enumerate(factors)
        ]
        carried = None if sums.is_c_last else Number(c, self._load("c", "c", part="exponents"))
        result = ""
        for steps in sums.blocks:
            terms = [products[step] for step in steps]
            if is_near:
                if result:
                    exponent = aligned_blocks.exponent_of(text, result, sums.accumulator)
                    carried = Number(result, exponent)
                result = near_blocks.block(text, terms, carried, sums.accumulator)
            else:
                if result:
                    carried = aligned_blocks.carry(text, result, sums.accumulator)
                result = aligned_blocks.block(text, terms, carried, sums.accumulator)
        return result

    def _exact_integers(self, factors: list[tuple[str, str]], c: str) -> str:
        """Products of at most 64 bytes or 256 bits cannot overflow before C is added."""
        form, text = self._form, self._text
        line, total = text.type("i32"), "zeroinitializer"
        for x, y in factors:
            product = text.binary(form.combine or "mul", "i32", x, y)
            if form.combine:
                product = self._call(f"@llvm.ctpop.v{self._width}i32", line, product)
            total = text.binary("add", "i32", total, product)
        if not form.is_saturating:
            return text.binary("add", "i32", total, c)
        return self._call(f"@llvm.sadd.sat.v{self._width}i32", line, total, c)

    def _fused(self, factors: list[tuple[str, str]], total: str) -> str:
        """The total and products, each added by a fused multiply-add."""
        line, suffix = self._text.type(self._held), f"v{self._width}{_SUFFIX[self._held]}"
        for x, y in factors:
            if self._form.rounding == "rn":
                total = self._call(f"@llvm.fma.{suffix}", line, x, y, total)
                continue
            name = f"@llvm.experimental.constrained.fma.{suffix}"
            self.declarations.add(
                f"declare {line} {name}({line}, {line}, {line}, metadata, metadata)"
            )
            how = 'metadata !"round.dynamic", metadata !"fpexcept.strict"'
            given = ", ".join(f"{line} {each}" for each in (x, y, total))
            total = self._text.name(f"call {line} {name}({given}, {how}) strictfp")
        return total

    def _call(self, name: str, type_: str, *values: str) -> str:
        """Call a function whose arguments and result have one type."""
        self.declarations.add(f"declare {type_} {name}({', '.join(type_ for _ in values)})")
        return self._text.name(f"call {type_} {name}({', '.join(f'{type_} {v}' for v in values)})")
