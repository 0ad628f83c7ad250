"""Cellar, jit. An operand during emission: its LLVM texts and its shape.

Scalars are literals ("5", "0x3FF0000000000000", "true") or names ("%t7"); vectors are names,
`splat (...)` constants or `zeroinitializer`, always of the builder's lane count.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.jit.vector_ir.uniformity import UNIFORM, VARYING, Shape

_FLOAT_BITS = {"half": 16, "float": 32, "double": 64}
_INTRINSIC_SUFFIX = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}

# Packed pairs and formats without LLVM arithmetic on every target are kept as bits.
_LLVM_FLOATS = {
    ScalarType.F16: "half",
    ScalarType.F32: "float",
    ScalarType.F64: "double",
}


@dataclass(frozen=True, slots=True)
class Value:
    """One operand.

    `type` is the LLVM type of one lane. `text` is a scalar for UNIFORM, the base for AFFINE and
    WIDE, a vector for VARYING. `index` is the 32-bit index of a WIDE value: a scalar base if it is
    affine, else a vector. `lift` holds a LIFTED value's amount, and its lanes as an integer.
    """

    type: str
    text: str
    shape: Shape
    index: str = ""
    lift: tuple[str, str] = ("", "")

    @property
    def is_uniform(self) -> bool:
        return self.shape.is_uniform

    @property
    def is_varying(self) -> bool:
        return self.shape.is_varying

    @property
    def literal(self) -> int | None:
        """The value of an integer literal; None for any other operand."""
        if self.is_uniform and self.text.lstrip("-").isdecimal():
            return int(self.text)
        return None


def llvm_type(type_: ScalarType) -> str:
    """The LLVM type of a register of a PTX type."""
    return _LLVM_FLOATS.get(type_) or f"i{type_.bits}"


def bits_of(type_: str) -> int:
    """The width of an LLVM scalar type."""
    return _FLOAT_BITS.get(type_) or int(type_[1:])


def is_float(type_: str) -> bool:
    return type_ in _FLOAT_BITS


def suffix(type_: str) -> str:
    """The type's name inside an intrinsic's name: float is f32."""
    return _INTRINSIC_SUFFIX.get(type_, type_)


def uniform(type_: str, text: str) -> Value:
    return Value(type_, text, UNIFORM)


def varying(type_: str, text: str) -> Value:
    return Value(type_, text, VARYING)


def integer(type_: str, value: int) -> Value:
    """An integer literal, brought into the signed range of its type."""
    bits = bits_of(type_)
    if bits == 1:
        return uniform(type_, "true" if value & 1 else "false")
    half = 1 << (bits - 1)
    return uniform(type_, str((value + half) % (2 * half) - half))


def zero(type_: str) -> Value:
    """The zero of an LLVM scalar type."""
    if is_float(type_):
        return Value(type_, "0.0", UNIFORM)
    return integer(type_, 0)
