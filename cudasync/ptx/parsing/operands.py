"""Floor 0. The operands of an instruction.

Undeclared names are refused here, so every operand of the IR has a meaning. Addresses of textures
and tensors, `[handle, {x, y}]`, become a Vector of the Address and the coordinates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import (
    Address,
    Integer,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    Vector,
)
from cudasync.ptx.parsing.constants import begins_constant, constant, offset

if TYPE_CHECKING:
    from cudasync.ptx.parsing.cursor import Cursor
    from cudasync.ptx.parsing.scopes import Names

_ENDS = frozenset({",", ";", "}", ")", "]"})
_SINK = Sink()
_EMPTY = Vector(())
# Vectors hold scalars; [handle, {x, y}] is the deepest that PTX nests them.
_DEEPEST = 3


class OperandReader:
    """Reads operands at `cursor`; `names` and `labels` are those of the function being read."""

    __slots__ = ("cursor", "labels", "names", "tables")

    def __init__(
        self, cursor: Cursor, names: Names[Operand], labels: Names[Label], tables: Names[Label]
    ) -> None:
        self.cursor = cursor
        self.names = names
        self.labels = labels
        self.tables = tables

    def operand(self, depth: int = 0) -> Operand:
        """The operand here."""
        cursor = self.cursor
        word = cursor.words[cursor.index]
        found = self.names.meanings.get(word)
        if found is not None and cursor.words[cursor.index + 1] in _ENDS:
            cursor.index += 1
            return found
        match word:
            case "[":
                return self.address(depth)
            case "{":
                return self.vector("{", "}", depth)
            case "!" if cursor.words[cursor.index + 1] in self.names.meanings:
                cursor.index += 1
                return Negated(self._register("predicate"))
            case "!":
                return constant(cursor)
            case "_":
                cursor.index += 1
                return self._pair(_SINK)
        if begins_constant(word) or isinstance(found, Integer):
            return constant(cursor)
        return self._named()

    def label(self, *, table: bool = False) -> Label:
        """The label here, or with `table` the name of a .branchtargets list."""
        cursor = self.cursor
        what = "table of labels" if table else "label"
        name = cursor.name(what)
        found = (self.tables if table else self.labels).meanings.get(name)
        if found is None:
            cursor.fail(f"{what} {name} is not declared", cursor.index - 1)
        return found

    def address(self, depth: int = 0) -> Address | Vector:
        """`[base + offset]`, or `[base, {coordinates}, ...]`."""
        cursor = self.cursor
        cursor.expect("[")
        base: Operand
        if begins_constant(cursor.word):
            base = constant(cursor)
        else:
            base = self._declared()
        if not isinstance(base, Register | Symbol | Integer):
            cursor.fail("an address begins with a register, a variable or a number")
        address = Address(base, offset(cursor))
        if cursor.take("]"):
            return address
        elements: list[Operand] = [address]
        while cursor.take(","):
            elements.append(self.operand(depth + 1))
        cursor.expect("]")
        return Vector(tuple(elements))

    def vector(self, opening: str, closing: str, depth: int = 0) -> Vector:
        """`{a, b}` or `(a, b)`."""
        cursor = self.cursor
        if depth >= _DEEPEST:
            cursor.fail("vectors are nested too deeply")
        cursor.expect(opening)
        if cursor.take(closing):
            return _EMPTY
        elements = [self.operand(depth + 1)]
        while cursor.take(","):
            elements.append(self.operand(depth + 1))
        cursor.expect(closing)
        return Vector(tuple(elements))

    def call(self) -> tuple[Operand, ...]:
        """`(results), callee, (arguments), prototype`; only the callee is required."""
        cursor = self.cursor
        results = _EMPTY
        if cursor.word == "(":
            results = self.vector("(", ")")
            cursor.expect(",")
        callee = self._declared()
        if not isinstance(callee, Symbol | Register):
            cursor.fail("a call names a function or a register", cursor.index - 1)
        arguments = _EMPTY
        if cursor.word == "," and cursor.words[cursor.index + 1] == "(":
            cursor.index += 1
            arguments = self.vector("(", ")")
        if cursor.take(","):
            return (results, callee, arguments, self.label(table=True))
        return (results, callee, arguments)

    def _named(self) -> Operand:
        """A name with an optional suffix: `symbol+4`, `d|p`."""
        found = self._declared()
        if isinstance(found, Symbol):
            distance = offset(self.cursor)
            return Symbol(found.name, distance) if distance else found
        if isinstance(found, Register):
            return self._pair(found)
        return found

    def _declared(self) -> Operand:
        cursor = self.cursor
        word = cursor.word
        found = self.names.meanings.get(word)
        if found is None:
            if word[:1].isalpha() or word[:1] in ("_", "$", "%"):
                cursor.fail(f"{word} is not declared")
            cursor.unexpected("operand")
        cursor.index += 1
        return found

    def _pair(self, first: Register | Sink) -> Operand:
        cursor = self.cursor
        if not cursor.take("|"):
            return first
        if cursor.take("_"):
            return Pair(first, _SINK)
        return Pair(first, self._register("predicate"))

    def _register(self, what: str) -> Register:
        found = self._declared()
        if not isinstance(found, Register):
            self.cursor.fail(f"{what} register expected", self.cursor.index - 1)
        return found
