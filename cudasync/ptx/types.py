"""Floor 0. The fundamental types and state spaces of PTX.

Names and sizes are those of the PTX ISA, sections "Types" and "State Spaces".
"""

from __future__ import annotations

from enum import Enum, unique


@unique
class ScalarType(Enum):
    """A fundamental PTX type; the value is its name without the dot."""

    PRED = "pred"
    B8 = "b8"
    B16 = "b16"
    B32 = "b32"
    B64 = "b64"
    B128 = "b128"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    S8 = "s8"
    S16 = "s16"
    S32 = "s32"
    S64 = "s64"
    F16 = "f16"
    F16X2 = "f16x2"
    BF16 = "bf16"
    BF16X2 = "bf16x2"
    TF32 = "tf32"
    F32 = "f32"
    F64 = "f64"
    # Types that only some instructions have: several small numbers in one register.
    F32X2 = "f32x2"
    S16X2 = "s16x2"
    U16X2 = "u16x2"
    E4M3X2 = "e4m3x2"
    E5M2X2 = "e5m2x2"
    E2M3X2 = "e2m3x2"
    E3M2X2 = "e3m2x2"
    E2M1X2 = "e2m1x2"

    # Types are very often keys of tables, and Enum's own hash is written in Python.
    __hash__ = object.__hash__

    @property
    def bits(self) -> int:
        """Width in bits; 1 for predicates."""
        return _BITS[self]

    @property
    def size(self) -> int:
        """Width in bytes in memory."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.value[0] in "fe" or self.value[:2] in ("bf", "tf")

    @property
    def is_signed(self) -> bool:
        """True for .s8 to .s64 and .s16x2 only, not for untyped bits and unsigned integers."""
        return self.value[0] == "s"

    @property
    def is_integer(self) -> bool:
        """True for .u, .s and untyped .b types."""
        return not self.is_float and self is not ScalarType.PRED

    def __repr__(self) -> str:
        return f".{self.value}"


_BITS = {
    ScalarType.PRED: 1,
    ScalarType.F16X2: 32,
    ScalarType.BF16X2: 32,
    ScalarType.BF16: 16,
    ScalarType.TF32: 32,
    ScalarType.F32X2: 64,
    ScalarType.S16X2: 32,
    ScalarType.U16X2: 32,
    ScalarType.E4M3X2: 16,
    ScalarType.E5M2X2: 16,
    ScalarType.E2M3X2: 16,
    ScalarType.E3M2X2: 16,
    ScalarType.E2M1X2: 8,
} | {t: int(t.value[1:]) for t in ScalarType if t.value[0] in "busf" and t.value[1:].isdigit()}

TYPE_NAMES: dict[str, ScalarType] = {t.value: t for t in ScalarType}


@unique
class StateSpace(Enum):
    """Where a variable or an address lives; GENERIC for an address without a named space."""

    CONST = "const"
    GLOBAL = "global"
    LOCAL = "local"
    PARAM = "param"
    SHARED = "shared"
    GENERIC = "generic"

    def __repr__(self) -> str:
        return f".{self.value}"


@unique
class Access(Enum):
    """What a kernel may do to memory through a parameter."""

    VALUE = "never used as an address"
    READ = "read"
    WRITE = "written"
    READ_WRITE = "read and written"
    UNKNOWN = "used in an untraceable way: may be read and written"

    @property
    def reads(self) -> bool:
        return self in (Access.READ, Access.READ_WRITE, Access.UNKNOWN)

    @property
    def writes(self) -> bool:
        return self in (Access.WRITE, Access.READ_WRITE, Access.UNKNOWN)
