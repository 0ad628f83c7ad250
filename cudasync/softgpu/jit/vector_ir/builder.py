"""Cellar, jit. Emits LLVM IR text for one function, with warps of lanes as values.

Operations take `Value`s and compute in the cheapest form: scalars while every operand is uniform,
otherwise vectors of `lanes` elements. Only `add`, `subtract`, `multiply`, `shift_left`, `extend`
and `truncate` keep the shapes between; all other operations treat an affine value as varying.

A builder made with `is_silent` keeps no text and composes little, but yields the same shapes. The
divergence analysis runs the emitters with it, so that analysis and emitted code agree.
"""

from __future__ import annotations

from dataclasses import replace

from cudasync.softgpu.jit.vector_ir.function_writer import SILENT, Writer
from cudasync.softgpu.jit.vector_ir.mask_vectors import flags_of
from cudasync.softgpu.jit.vector_ir.uniformity import Kind, affine, wide
from cudasync.softgpu.jit.vector_ir.values import (
    Value,
    bits_of,
    integer,
    is_float,
    suffix,
    uniform,
    varying,
)
from cudasync.softgpu.jit.vector_ir.wraparound_indices import (
    in_lanes,
    is_alone,
    lifted,
    without_lift,
)


class Builder(Writer):
    """Computes on warps of lanes, in the text of one function under construction."""

    # Forms.

    def lane_offsets(self, type_: str, stride: int) -> str:
        """The constant vector 0, stride, 2 * stride, ..."""
        offsets = (integer(type_, lane * stride).text for lane in range(self.lanes))
        return "<" + ", ".join(f"{type_} {offset}" for offset in offsets) + ">"

    def splat(self, type_: str, text: str) -> str:
        """A vector with the scalar `text` in all lanes."""
        if not text.startswith("%"):
            return f"splat ({type_} {text})"
        vector = self.vector_type(type_)
        single = self.name(f"insertelement {vector} poison, {type_} {text}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.name(f"shufflevector {vector} {single}, {vector} poison, {zeros}")

    def vector(self, value: Value) -> str:
        """The operand text of `value` as a vector."""
        if self.is_silent:
            return value.text
        match value.shape.kind:
            case Kind.VARYING:
                return value.text
            case Kind.UNIFORM:
                return self.splat(value.type, value.text)
            case Kind.AFFINE:
                base = self.splat(value.type, value.text)
                offsets = self.lane_offsets(value.type, value.shape.stride)
                return self.name(f"add {self.vector_type(value.type)} {base}, {offsets}")
            case Kind.WIDE:
                return self._wide_vector(value)
            case Kind.LIFTED:
                vector = self.vector_type(value.type)
                plain = self.vector(without_lift(value))
                flags = flags_of(self, value.lift[1])
                amount = self.splat(value.type, value.lift[0])
                type_ = self.vector_type("i1")
                chosen = f"select {type_} {flags}, {vector} {amount}, {vector} zeroinitializer"
                return self.name(f"add {vector} {plain}, {self.name(chosen)}")

    def _wide_vector(self, value: Value) -> str:
        shape = value.shape
        index = self.vector(self.wide_index(value))
        how = "sext" if shape.is_signed else "zext"
        narrow, vector = self.vector_type("i32"), self.vector_type("i64")
        extended = self.name(f"{how} {narrow} {index} to {vector}")
        scaled = extended
        if shape.scale != 1:
            scaled = self.name(f"mul {vector} {extended}, splat (i64 {shape.scale})")
        return self.name(f"add {vector} {scaled}, {self.splat('i64', value.text)}")

    def wide_index(self, value: Value) -> Value:
        """The 32-bit index of a WIDE value."""
        if value.shape.stride:
            return Value("i32", value.index, affine(value.shape.stride, 32))
        return varying("i32", value.index)

    def first_lane(self, value: Value) -> str:
        """The value in lane 0 of a WIDE value with an affine index."""
        how = "sext" if value.shape.is_signed else "zext"
        index = self.name(f"{how} i32 {value.index} to i64")
        scaled = self.name(f"mul i64 {index}, {value.shape.scale}")
        return self.name(f"add i64 {value.text}, {scaled}")

    def is_straight(self, value: Value) -> str:
        """An i1: the 32-bit index of a WIDE value does not wrap from the first lane to the last."""
        sign = "s" if value.shape.is_signed else "u"
        span = (self.lanes - 1) * value.shape.stride
        assert abs(span) < 1 << 31, value
        # An unsigned index that counts down wraps where it would pass zero.
        operation, amount = (f"{sign}add", span) if span > 0 else (f"{sign}sub", -span)
        pair_type = "{i32, i1}"
        full = f"@llvm.{operation}.with.overflow.i32"
        self.declarations.add(f"declare {pair_type} {full}(i32, i32)")
        pair = self.name(f"call {pair_type} {full}(i32 {value.index}, i32 {amount})")
        wraps = self.name(f"extractvalue {pair_type} {pair}, 1")
        return self.name(f"xor i1 {wraps}, true")

    def join(self, first: Value, first_end: str, second: Value, second_end: str) -> Value:
        """A phi of two vectors: the one from the block that ran before."""
        vector = self.vector_type(first.type)
        ways = f"[{first.text}, %{first_end}], [{second.text}, %{second_end}]"
        return varying(first.type, self.name(f"phi {vector} {ways}"))

    def varying(self, value: Value) -> Value:
        return varying(value.type, self.vector(value))

    def flat(self, value: Value) -> Value:
        """`value` as a scalar or a vector, in no shape between."""
        return value if value.is_uniform else self.varying(value)

    # Operations on any shapes, lane by lane.

    def apply(self, form: str, result: str, *operands: Value) -> Value:
        """Emit `form`, an instruction with places {0}, {1}... for operands and {T}, {R} for types.

        {T} stands for the type of the first operand, {R} for the result's, both widened to
        vectors unless every operand is uniform.
        """
        is_uniform = all(operand.is_uniform for operand in operands)
        if self.is_silent:
            return uniform(result, SILENT) if is_uniform else varying(result, SILENT)
        if is_uniform:
            texts = [operand.text for operand in operands]
            return uniform(result, self.name(form.format(*texts, T=operands[0].type, R=result)))
        texts = [self.vector(operand) for operand in operands]
        types = {"T": self.vector_type(operands[0].type), "R": self.vector_type(result)}
        return varying(result, self.name(form.format(*texts, **types)))

    def binary(self, operation: str, first: Value, second: Value) -> Value:
        return self.apply(operation + " {T} {0}, {1}", first.type, first, second)

    def compare(self, operation: str, first: Value, second: Value) -> Value:
        """`operation` is "icmp ult", "fcmp oeq" and the like."""
        return self.apply(operation + " {T} {0}, {1}", "i1", first, second)

    def select(self, condition: Value, first: Value, second: Value) -> Value:
        is_one_text = not first.index and first.shape.kind is not Kind.LIFTED
        if condition.is_uniform and first.shape == second.shape and is_one_text:
            type_ = self.vector_type(first.type) if first.is_varying else first.type
            chosen = f"select i1 {condition.text}, {type_} {first.text}, {type_} {second.text}"
            return Value(first.type, self.name(chosen), first.shape)
        vector = self.vector_type(first.type)
        flags = (
            f"i1 {condition.text}"
            if condition.is_uniform
            else f"{self.vector_type('i1')} {condition.text}"
        )
        texts = self.vector(first), self.vector(second)
        return varying(
            first.type, self.name(f"select {flags}, {vector} {texts[0]}, {vector} {texts[1]}")
        )

    def intrinsic(self, name: str, result: str, *operands: Value, flag: str = "") -> Value:
        """Call `llvm.name` lane by lane; `flag` is a trailing i1 argument ("true", "false")."""
        is_scalar = all(operand.is_uniform for operand in operands)
        if self.is_silent:
            return uniform(result, SILENT) if is_scalar else varying(result, SILENT)
        wrap = str if is_scalar else self.vector_type
        texts = [operand.text if is_scalar else self.vector(operand) for operand in operands]
        # The name is overloaded on the result, and on the operand if its type differs.
        overloads = [result] if operands[0].type == result else [result, operands[0].type]
        mangled = "".join(
            f".{suffix(each)}" if is_scalar else f".v{self.lanes}{suffix(each)}"
            for each in overloads
        )
        arguments = [f"{wrap(each.type)} {t}" for each, t in zip(operands, texts, strict=True)]
        types = [wrap(each.type) for each in operands]
        if flag:
            arguments.append(f"i1 {flag}")
            types.append("i1")
        full = f"@llvm.{name}{mangled}"
        self.declarations.add(f"declare {wrap(result)} {full}({', '.join(types)})")
        text = self.name(f"call {wrap(result)} {full}({', '.join(arguments)})")
        return uniform(result, text) if is_scalar else varying(result, text)

    def reduce(self, name: str, vector: Value) -> str:
        """`llvm.vector.reduce.name` of a varying value: a scalar."""
        type_ = self.vector_type(vector.type)
        full = f"@llvm.vector.reduce.{name}.v{self.lanes}{suffix(vector.type)}"
        self.declarations.add(f"declare {vector.type} {full}({type_})")
        return self.name(f"call {vector.type} {full}({type_} {vector.text})")

    # Casts.

    def bitcast(self, value: Value, type_: str) -> Value:
        if value.type == type_:
            return value
        if is_float(value.type) or is_float(type_):
            value = self.flat(value)
            return self.apply("bitcast {T} {0} to {R}", type_, value)
        assert bits_of(value.type) == bits_of(type_), (value, type_)
        return value

    def extend(self, value: Value, type_: str, *, is_signed: bool) -> Value:
        """A wider integer; from a 32-bit index to 64 bits the result is WIDE."""
        if value.type == type_:
            return value
        literal = value.literal
        if literal is not None:
            mask = (1 << bits_of(value.type)) - 1
            return integer(type_, literal if is_signed else literal & mask)
        if is_alone(value):
            return in_lanes(value, lambda each: self.extend(each, type_, is_signed=is_signed))
        if value.type == "i32" and type_ == "i64" and not value.is_uniform:
            shape = wide(value.shape, scale=1, is_signed=is_signed)
            return Value("i64", "0", shape, index=value.text)
        how = "sext" if is_signed else "zext"
        return self.apply(how + " {T} {0} to {R}", type_, value)

    def truncate(self, value: Value, type_: str) -> Value:
        """A narrower integer."""
        if value.type == type_:
            return value
        literal = value.literal
        if literal is not None:
            return integer(type_, literal)
        shape = value.shape
        if shape.kind is Kind.AFFINE:
            base = self.name(f"trunc {value.type} {value.text} to {type_}")
            return Value(type_, base, affine(shape.stride, bits_of(type_)))
        if shape.kind is Kind.WIDE and type_ == "i32":
            base_value = uniform("i32", self.name(f"trunc i64 {value.text} to i32"))
            scaled = self.multiply(self.wide_index(value), integer("i32", shape.scale))
            return self.add(base_value, scaled)
        return self.apply("trunc {T} {0} to {R}", type_, value)

    # Integer arithmetic that keeps shapes.

    def add(self, first: Value, second: Value) -> Value:
        if second.shape.kind is Kind.WIDE or first.is_uniform:
            first, second = second, first
        kinds = first.shape.kind, second.shape.kind
        if kinds == (Kind.WIDE, Kind.LIFTED) and not second.shape.scale:
            return lifted(self.add(first, without_lift(second)), second)
        if kinds == (Kind.LIFTED, Kind.UNIFORM) and first.shape.scale:
            return replace(first, text=self.add(uniform("i64", first.text), second).text)
        if kinds == (Kind.WIDE, Kind.UNIFORM):
            if second.text == "0":
                return first
            base = second.text
            if first.text != "0":
                base = self.name(f"add i64 {first.text}, {second.text}")
            return Value("i64", base, first.shape, index=first.index)
        if Kind.AFFINE in kinds and set(kinds) <= {Kind.AFFINE, Kind.UNIFORM}:
            base = self.name(f"add {first.type} {first.text}, {second.text}")
            stride = first.shape.stride + second.shape.stride
            return Value(first.type, base, affine(stride, bits_of(first.type)))
        if second.text == "0" and second.is_uniform:
            return first
        return self.binary("add", first, second)

    def subtract(self, first: Value, second: Value) -> Value:
        kinds = first.shape.kind, second.shape.kind
        if kinds == (Kind.LIFTED, Kind.UNIFORM) and first.shape.scale:
            return replace(first, text=self.subtract(uniform("i64", first.text), second).text)
        if kinds == (Kind.WIDE, Kind.UNIFORM):
            base = self.name(f"sub i64 {first.text}, {second.text}")
            return Value("i64", base, first.shape, index=first.index)
        if Kind.AFFINE in kinds and set(kinds) <= {Kind.AFFINE, Kind.UNIFORM}:
            base = self.name(f"sub {first.type} {first.text}, {second.text}")
            stride = first.shape.stride - second.shape.stride
            return Value(first.type, base, affine(stride, bits_of(first.type)))
        return self.binary("sub", first, second)

    def multiply(self, first: Value, second: Value) -> Value:
        if first.literal is not None:
            first, second = second, first
        factor = second.literal
        shape = first.shape
        if factor == 1:
            return first
        if factor is not None and shape.kind is Kind.AFFINE:
            base = self.name(f"mul {first.type} {first.text}, {factor}")
            return Value(first.type, base, affine(shape.stride * factor, bits_of(first.type)))
        if factor is not None and shape.kind is Kind.LIFTED:
            by = in_lanes(first, lambda amount: self.multiply(amount, second))
            if is_alone(first):
                return by
            plain = self.multiply(without_lift(first), second)
            if plain.shape.kind is Kind.WIDE:
                return lifted(plain, by)
        if factor is not None and shape.kind is Kind.WIDE and 0 < abs(factor * shape.scale) < 2**31:
            base = first.text
            if base != "0":
                base = self.name(f"mul i64 {base}, {factor}")
            index = self.wide_index(first).shape
            scaled = wide(index, scale=shape.scale * factor, is_signed=shape.is_signed)
            return Value("i64", base, scaled, index=first.index)
        return self.binary("mul", first, second)

    def shift_left(self, value: Value, count: int) -> Value:
        """Shift by a constant less than the width."""
        bits = bits_of(value.type)
        assert 0 <= count < bits, count
        if value.shape.kind in (Kind.AFFINE, Kind.WIDE, Kind.LIFTED) and count < 31:
            return self.multiply(value, integer("i64", 1 << count))
        return self.binary("shl", value, integer(value.type, count))
