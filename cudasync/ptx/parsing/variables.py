"""Floor 0. Declarations of variables, and their initial values.

`.global .align 4 .v2 .f32 corners[2][3] = {{1.0, 2.0}, {3.0}};` is one Variable of 12 scalars.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Float, Integer, Span, Symbol, SymbolAddress, Variable
from cudasync.ptx.parsing.constants import begins_constant, constant, expression, offset
from cudasync.ptx.types import TYPE_NAMES, ScalarType, StateSpace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.ptx.ir import Operand
    from cudasync.ptx.parsing.cursor import Cursor

SPACES = {f".{space.value}": space for space in StateSpace if space is not StateSpace.GENERIC}
_TYPES = {f".{name}": type_ for name, type_ in TYPE_NAMES.items()}
_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
_HANDLES = frozenset({".texref", ".samplerref", ".surfref"})

# No device has more memory; a larger size is a typing mistake.
_LARGEST = 1 << 40
# Missing initial values become zeros, up to this many.
_MOST_PADDING = 1 << 22
_DEEPEST = 16

_NOTHING: dict[str, Operand] = {}
Initial = Integer | Float | SymbolAddress


@dataclass(slots=True)
class TypePart:
    """The part before the name: `.align 8 .v2 .f32`."""

    type: ScalarType
    vector: int
    align: int
    handle: str = ""


def scalar_type(cursor: Cursor) -> ScalarType:
    """The type that stands here."""
    found = _TYPES.get(cursor.word)
    if found is None:
        cursor.unexpected("type")
    cursor.index += 1
    return found


def type_part(cursor: Cursor) -> TypePart:
    """Read up to the name. `.ptr` with its space and alignment describes the pointer's target."""
    align = 0
    vector = 1
    handle = ""
    found: ScalarType | None = None
    while (word := cursor.word).startswith("."):
        if word == ".ptr" and found is not None:
            _skip_pointer(cursor)
            break
        cursor.index += 1
        if word == ".align":
            align = cursor.power_of_two("alignment")
        elif word in _VECTORS:
            vector = _VECTORS[word]
        elif word == ".attribute":
            cursor.skip_balanced("(", ")")
        elif word in _HANDLES and found is None:
            # The lowerings decide what an instruction finds there.
            found, handle = ScalarType.B64, word[1:]
        elif word in _TYPES and found is None:
            found = _TYPES[word]
        else:
            cursor.fail(f"{word} is not allowed in a declaration", cursor.index - 1)
    if found is None:
        cursor.unexpected("type")
    return TypePart(found, vector, align or found.size * vector, handle)


def _skip_pointer(cursor: Cursor) -> None:
    cursor.expect(".ptr")
    if cursor.word in SPACES:
        cursor.index += 1
    if cursor.take(".align"):
        cursor.power_of_two("alignment")


def declarator(
    cursor: Cursor,
    part: TypePart,
    space: StateSpace,
    name: str,
    span: Span,
    *,
    is_extern: bool = False,
    addressable: Mapping[str, Operand] = _NOTHING,
) -> Variable:
    """Read the part after the name: dimensions and initial values, which may name `addressable`."""
    dimensions: list[int] = []
    while cursor.take("["):
        if cursor.take("]"):
            if dimensions:
                cursor.fail("only the first dimension may be left out", cursor.index - 1)
            dimensions.append(0)
        else:
            index = cursor.index
            dimensions.append(expression(cursor))
            if dimensions[-1] < 0:
                cursor.fail("a dimension must not be negative", index)
            cursor.expect("]")
    is_array = bool(dimensions)
    if part.vector > 1:
        dimensions.append(part.vector)
    initial: list[Initial] = []
    if cursor.take("="):
        initial = _InitialReader(cursor, part.type, addressable).read(dimensions)
        if is_array and dimensions[0] == 0:
            row = math.prod(dimensions[1:])
            dimensions[0] = -(-len(initial) // row) if row else 0
    count = math.prod(dimensions)
    if count * part.type.size > _LARGEST:
        cursor.fail(f"{name} is too large", cursor.index - 1)
    if len(initial) > count:
        cursor.fail(f"{name} has more initial values than elements", cursor.index - 1)
    return Variable(
        name,
        space,
        part.type,
        count,
        part.align,
        is_array,
        is_extern,
        tuple(initial),
        span,
        part.handle,
    )


class _InitialReader:
    """Reads `= ...` into one flat list."""

    def __init__(
        self, cursor: Cursor, type_: ScalarType, addressable: Mapping[str, Operand]
    ) -> None:
        self._cursor = cursor
        self._type = type_
        self._addressable = addressable
        self._padding = 0

    def read(self, dimensions: list[int]) -> list[Initial]:
        if self._cursor.word == "{":
            return self._braces(dimensions)
        return [self._value()]

    def _braces(self, dimensions: list[int]) -> list[Initial]:
        """`{...}`: each inner brace begins a new row, even if values were left out before it."""
        cursor = self._cursor
        if len(dimensions) > _DEEPEST:
            cursor.fail("more dimensions than can be initialised")
        if not dimensions:
            cursor.fail("the value of a scalar has braces: remove them")
        cursor.expect("{")
        row = math.prod(dimensions[1:])
        values: list[Initial] = []
        while cursor.word != "}":
            if cursor.word == "{":
                self._pad(values, -len(values) % row if row else 0)
                begin = len(values)
                values += self._braces(dimensions[1:])
                self._pad(values, begin + row - len(values) if cursor.word == "," else 0)
            else:
                values.append(self._value())
            if not cursor.take(","):
                break
        cursor.expect("}")
        return values

    def _pad(self, values: list[Initial], count: int) -> None:
        self._padding += max(count, 0)
        if self._padding > _MOST_PADDING:
            self._cursor.fail("too few initial values")
        values += [Integer(0)] * count

    def _value(self) -> Initial:
        cursor = self._cursor
        if begins_constant(cursor.word):
            found = constant(cursor)
            if cursor.word == "(" and isinstance(found, Integer) and found.value > 0:
                cursor.index += 1
                masked = replace(self._address(), mask=found.value)
                cursor.expect(")")
                return masked
            return self._typed(found)
        return self._address()

    def _address(self) -> SymbolAddress:
        """`name + 4`, or `generic(name) + 4`."""
        cursor = self._cursor
        is_generic = cursor.take("generic")
        if is_generic:
            cursor.expect("(")
        index = cursor.index
        name = cursor.name("initial value")
        meant = self._addressable.get(name)
        if meant is None:
            cursor.fail(f"{name} is not declared", index)
        if isinstance(meant, Symbol):
            name = meant.name
        if is_generic:
            cursor.expect(")")
        return SymbolAddress(name, offset(cursor), is_generic)

    def _typed(self, found: Integer | Float) -> Integer | Float:
        """A decimal float gets the width of the variable that it initialises."""
        if isinstance(found, Integer) or self._type is not ScalarType.F32:
            return found
        return found if found.type is ScalarType.F32 else Float(_single(found.bits), self._type)


def _single(bits: int) -> int:
    """The bits of the float nearest to a double; infinity if the double is too large."""
    value: float = struct.unpack(">d", bits.to_bytes(8))[0]
    try:
        return int.from_bytes(struct.pack(">f", value))
    except OverflowError:
        return 0x7F800000 | (0x80000000 if value < 0 else 0)
