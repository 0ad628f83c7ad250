"""Cellar. The matrix products of the tensor instructions: mma and wmma.mma by their names.

A form is exactly the content of the dotted name: shape, element types, layouts, integer overflow.
Both lowerings take an instruction's meaning from here, and each computes it in its own way.
`matrix_fragments` says which lane holds which element. Forms outside the tables are refused: sparse
and block-scaled forms, and the types of fewer than eight bits that only sm_100a and its kin have.

Source: the PTX ISA, sections "mma" and "Warp-level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.ptx.types import ScalarType

# Bits of an element. A word of 32 one-bit elements counts as one element.
ELEMENT_BITS = {
    "f64": 64, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8,
    "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 32,
}  # fmt: skip
_WORD_OF_BITS = 32
# Element types that are no PTX register types, so the parser leaves them among the modifiers.
_NAMED = frozenset({"s4", "u4", "b1", "e4m3", "e5m2"})
ROUNDINGS = frozenset({"rn", "rz", "rm", "rp"})
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")

_WMMA_SHAPES = "m16n16k16 m8n32k16 m32n8k16"
# The shapes of mma and of wmma, by element type.
_SHAPES = {
    "mma": {
        "f16": "m8n8k4 m16n8k8 m16n8k16",
        "bf16": "m16n8k8 m16n8k16",
        "tf32": "m16n8k4 m16n8k8",
        "f64": "m8n8k4 m16n8k4 m16n8k8 m16n8k16",
        "8 bits": "m8n8k16 m16n8k16 m16n8k32",
        "4 bits": "m8n8k32 m16n8k32 m16n8k64",
        "1 bit": "m8n8k128 m16n8k128 m16n8k256",
        "fp8": "m16n8k16 m16n8k32",
    },
    "wmma": {
        "f16": _WMMA_SHAPES,
        "bf16": _WMMA_SHAPES,
        "tf32": "m16n16k8",
        "f64": "m8n8k4",
        "8 bits": _WMMA_SHAPES,
        "4 bits": "m8n8k32",
        "1 bit": "m8n8k128",
    },
}
# The allowed element types of A and B together, and of C and D.
_KINDS = {
    "f16": ({"f16"}, {"f16", "f32"}), "bf16": ({"bf16"}, {"f32"}), "tf32": ({"tf32"}, {"f32"}),
    "f64": ({"f64"}, {"f64"}), "8 bits": ({"s8", "u8"}, {"s32"}), "4 bits": ({"s4", "u4"}, {"s32"}),
    "1 bit": ({"b1"}, {"s32"}), "fp8": ({"e4m3", "e5m2"}, {"f16", "f32"}),
}  # fmt: skip
_MODIFIERS = {"sync", "aligned", "row", "col", "satfinite", "xor", "and", "popc", *ROUNDINGS}
# Every modifier of any product; `form_of` decides on combinations.
MATRIX_MODIFIERS = frozenset(
    {*_MODIFIERS, *_NAMED, "mma", "load", "store", "a", "b", "c", "d"}
    | {shape for each in _SHAPES.values() for shapes in each.values() for shape in shapes.split()}
)


@dataclass(frozen=True, slots=True)
class Form:
    """D = A * B + C: A has `m` rows, B `n` columns; types by operand letter.

    `k` counts steps; for single bits, a step is a word of 32 elements. `is_opaque` is True for
    wmma, whose fragment layout is unspecified. `combine` is the operation that multiplies bits.
    """

    name: str
    shape: str
    m: int
    n: int
    k: int
    types: dict[str, str]
    layouts: dict[str, str]
    is_opaque: bool
    is_saturating: bool
    combine: str
    rounding: str

    @property
    def batches(self) -> int:
        """The number of products of a warp: m8n8k4 in f16 computes one for each quad pair."""
        return 4 if self.shape == "m8n8k4" and self.types["a"] == "f16" else 1

    @property
    def computes_in(self) -> str:
        """The type of products and sums."""
        return {"f64": "f64", "s32": "s32"}.get(self.types["d"], "f32")


def form_of(instruction: Instruction) -> Form | None:
    """The form of an mma or a wmma.mma; None if it is unknown."""
    return _form_of(instruction.opcode, instruction.modifiers, instruction.types)


@functools.cache
def _form_of(opcode: str, modifiers: tuple[str, ...], given: tuple[ScalarType, ...]) -> Form | None:
    is_wmma = opcode == "wmma"
    shape = next((each for each in modifiers if _SHAPE.fullmatch(each)), "")
    named = [each for each in modifiers if each in _NAMED]
    known = {*_MODIFIERS, *_NAMED, shape, *({"mma"} if is_wmma else ())}
    if not shape or not {"sync", "aligned"} <= set(modifiers) <= known:
        return None
    types = [each.value for each in given]
    if len(types) == 2 and (is_wmma or named):
        # The types of A and B stand between those of D and C, or are implied.
        between = named or ["f16", "f16"]
        types = [types[0], *between, types[1]]
    if len(types) != 4:
        return None
    d, a, b, c = types
    kind = _kind(a, b, c, d)
    if kind is None or shape not in _SHAPES["wmma" if is_wmma else "mma"].get(kind, "").split():
        return None
    layouts = [each for each in modifiers if each in ("row", "col")]
    combine = next((each for each in modifiers if each in ("xor", "and")), "")
    rounding = next((each for each in modifiers if each in ROUNDINGS), "rn")
    if len(layouts) != 2 or not _is_fitting(opcode, set(modifiers), kind, shape, layouts):
        return None
    m, n, k = _sizes(shape)
    return Form(
        name=".".join((opcode, *modifiers, *types)),
        shape=shape,
        m=m,
        n=n,
        k=k // _WORD_OF_BITS if kind == "1 bit" else k,
        types={"a": a, "b": b, "c": c, "d": d},
        layouts={"a": layouts[0], "b": layouts[1]},
        is_opaque=is_wmma,
        is_saturating="satfinite" in modifiers,
        combine=combine,
        rounding=rounding,
    )


def _sizes(shape: str) -> tuple[int, int, int]:
    found = _SHAPE.fullmatch(shape)
    assert found is not None, shape
    return int(found[1]), int(found[2]), int(found[3])


def _kind(a: str, b: str, c: str, d: str) -> str | None:
    for kind, (factors, sums) in _KINDS.items():
        if {a, b} <= factors and {c, d} <= sums:
            return kind
    return None


def _is_fitting(
    opcode: str, modifiers: set[str], kind: str, shape: str, layouts: list[str]
) -> bool:
    """Whether the form allows its layouts and its special modifiers."""
    is_free = kind in ("f16", "bf16", "tf32", "8 bits", "f64") and opcode == "wmma"
    is_free = is_free or (kind == "f16" and shape == "m8n8k4")
    if not is_free and layouts != ["row", "col"]:
        return False
    if modifiers & ROUNDINGS and kind != "f64":
        return False
    if "satfinite" in modifiers and kind not in ("8 bits", "4 bits"):
        return False
    if kind == "1 bit":
        return "popc" in modifiers and len(modifiers & {"xor", "and"}) == 1
    return not modifiers & {"popc", "xor", "and"}


@dataclass(frozen=True, slots=True)
class Part:
    """One matrix of a wmma.load or wmma.store, in memory as lines of `line` elements.

    In a row-major matrix, a line is a row. `count` is the number of lines.
    """

    operand: str
    type: str
    layout: str
    shape: str
    rows: int
    columns: int

    @property
    def is_by_rows(self) -> bool:
        return self.layout == "row"

    @property
    def line(self) -> int:
        return self.columns if self.is_by_rows else self.rows

    @property
    def count(self) -> int:
        return self.rows if self.is_by_rows else self.columns

    @property
    def line_bytes(self) -> int:
        return self.line * ELEMENT_BITS[self.type] // 8

    @property
    def stride_bits(self) -> int:
        """The unit of strides: an element, also if elements are single bits."""
        return 1 if self.type == "b1" else ELEMENT_BITS[self.type]

    @property
    def element_bytes(self) -> int:
        """The alignment of an access: an element, or a byte if elements are smaller."""
        return max(1, ELEMENT_BITS[self.type] // 8)


def part_of(instruction: Instruction) -> Part | None:
    """The matrix that a wmma.load or wmma.store moves; None if the form is unknown."""
    return _part_of(instruction.modifiers, instruction.types)


@functools.cache
def _part_of(written: tuple[str, ...], given: tuple[ScalarType, ...]) -> Part | None:
    modifiers = set(written)
    shape = next((each for each in modifiers if _SHAPE.fullmatch(each)), "")
    operand = next((each for each in ("a", "b", "c", "d") if each in modifiers), "")
    layout = next((each for each in ("row", "col") if each in modifiers), "")
    types = [each.value for each in given]
    types += [each for each in written if each in _NAMED]
    spaces = {"global", "shared", "shared::cta"}
    way = "load" if "load" in modifiers else "store"
    if modifiers - {"sync", "aligned", way, operand, layout, shape, *types, *spaces}:
        return None
    if not (shape and operand and layout) or len(types) != 1:
        return None
    is_stored = way == "store"
    if is_stored is not (operand == "d"):
        return None
    type_ = types[0]
    for kind, shapes in _SHAPES["wmma"].items():
        factors, sums = _KINDS[kind]
        if type_ in (factors if operand in "ab" else sums) and shape in shapes.split():
            break
    else:
        return None
    is_small = ELEMENT_BITS[type_] < 8 or type_ == "b1"
    if is_small and layout != ("row" if operand == "a" else "col"):
        # Words of small elements are not split, so they must lie along the lines.
        return None
    m, n, k = _sizes(shape)
    k = k // _WORD_OF_BITS if type_ == "b1" else k
    rows, columns = {"a": (m, k), "b": (k, n)}.get(operand, (m, n))
    return Part(operand, type_, layout, shape, rows, columns)
