"""Floor 0. A function: its head, its scopes, its declarations, its instructions.

One pass over the words of the body. Labels of a scope are declared when the scope is entered,
because they may be used before they are defined. Everything else is declared where it stands.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import (
    Function,
    Instruction,
    Label,
    Linkage,
    Operand,
    Register,
    SourceLocation,
    Symbol,
    Variable,
    Vector,
)
from cudasync.ptx.parsing.instruction import InstructionReader, Suffixes
from cudasync.ptx.parsing.operands import OperandReader
from cudasync.ptx.parsing.scopes import Names, Uniquifier
from cudasync.ptx.parsing.variables import SPACES, declarator, scalar_type, type_part
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.ptx.parsing.cursor import Cursor
    from cudasync.ptx.types import ScalarType

# Directives between the head of a function and its body, all followed by numbers.
_NUMBERED = frozenset(
    {
        ".maxntid",
        ".reqntid",
        ".minnctapersm",
        ".maxnctapersm",
        ".maxnreg",
        ".reqnctapercluster",
        ".maxclusterrank",
        ".abi_preserve",
        ".abi_preserve_control",
    }
)
_BARE = frozenset({".noreturn", ".explicitcluster", ".blocksareclusters"})

# The words that begin the next statement of a module. A declaration ends there, too, as in ptxas:
# compilers before PTX ISA 3 wrote no semicolon.
STATEMENT_STARTS = frozenset(
    {
        *(".visible", ".extern", ".weak", ".common"),
        *(".func", ".entry", ".file", ".section", ".alias"),
        *SPACES,
    }
)

# Spaces in which all calls, threads and blocks share a variable of a function.
_STATIC = frozenset({StateSpace.GLOBAL, StateSpace.CONST})

# A register file has 65,536 registers. Unrolled code declares more virtual ones, but never this
# many.
_MOST_REGISTERS = 1 << 18
_USED_BYTES: Final = re.compile(r'"used_bytes_mask (0x[0-9a-fA-F]{1,8}|[0-9]{1,10})"')
_WIDTHS = {".v2": 2, ".v4": 4}
# The components of a vector register have two names each.
_COMPONENTS = (("x", "r"), ("y", "g"), ("z", "b"), ("w", "a"))


class FunctionParser:
    """Parses one function at `cursor`, which stands after `.entry` or `.func`."""

    def __init__(
        self,
        cursor: Cursor,
        globals_: dict[str, Operand],
        files: dict[int, str],
        labels_in: dict[int, list[int]],
        suffixes: dict[str, Suffixes],
    ) -> None:
        self._cursor = cursor
        self._files = files
        self._labels_in = labels_in
        self._names: Names[Operand] = Names(globals_)
        self._label_names: Names[Label] = Names()
        self._table_names: Names[Label] = Names()
        self._unique = Uniquifier()
        self._unique_labels = Uniquifier()
        self._reader = OperandReader(cursor, self._names, self._label_names, self._table_names)
        self._instructions = InstructionReader(cursor, self._reader, suffixes)
        self._registers: dict[str, Register] = {}
        self._variables: list[Variable] = []
        self._body: list[Instruction] = []
        self._labels: dict[str, int] = {}
        self._tables: dict[str, tuple[str, ...]] = {}
        self._locations: list[SourceLocation] = []
        self._function = ""
        # Of a pragma, for the next instruction.
        self._used_bytes: int | None = None
        # Variables that belong to the module, but are visible in this function alone.
        self.shared_by_calls: list[Variable] = []

    def parse(self, linkage: Linkage, *, is_kernel: bool) -> Function:
        """The function; a declaration if `;` or nothing at all stands in place of a body."""
        cursor = self._cursor
        span = cursor.source.span(cursor.statement)
        results = self._parameters() if not is_kernel and cursor.word == "(" else ()
        self._function = name = cursor.name("name of a function")
        parameters = self._parameters(is_kernel=is_kernel) if cursor.word == "(" else ()
        directives = self._directives()
        ends_here = not is_kernel and (not cursor.word or cursor.word in STATEMENT_STARTS)
        is_declaration = cursor.take(";") or ends_here
        if not is_declaration:
            self._parse_body()
        return Function(
            name=name,
            is_kernel=is_kernel,
            linkage=linkage,
            parameters=parameters,
            results=results,
            registers=self._registers,
            variables=tuple(self._variables),
            body=tuple(self._body),
            labels=self._labels,
            span=span,
            is_declaration=is_declaration,
            tables=self._tables,
            locations=tuple(self._locations),
            directives=directives,
        )

    def _parameters(self, *, is_kernel: bool = False) -> tuple[Variable, ...]:
        """`(.param .u64 x, .reg .b32 y)`. A register parameter is also a register of that name."""
        cursor = self._cursor
        cursor.expect("(")
        parameters: list[Variable] = []
        while not cursor.take(")"):
            if parameters:
                cursor.expect(",")
            is_register = cursor.word == ".reg" and not is_kernel
            if not is_register and cursor.word != ".param":
                cursor.unexpected("'.param'")
            cursor.index += 1
            part = type_part(cursor)
            index = cursor.index
            name = cursor.name("name of a parameter")
            span = cursor.source.span(index)
            parameters.append(declarator(cursor, part, StateSpace.PARAM, name, span))
            if name == "_":
                continue
            if is_register:
                self._declare_register(name, part.type, index)
            else:
                self._declare(name, Symbol(self._unique.name(name)), index)
        return tuple(parameters)

    def _directives(self) -> dict[str, tuple[int, ...]]:
        cursor = self._cursor
        directives: dict[str, tuple[int, ...]] = {}
        while (word := cursor.word).startswith(".") and word not in STATEMENT_STARTS:
            cursor.index += 1
            if word in _NUMBERED:
                numbers = [cursor.natural("number")]
                while cursor.take(","):
                    numbers.append(cursor.natural("number"))
                directives[word[1:]] = tuple(numbers)
            elif word in _BARE:
                directives[word[1:]] = ()
            elif word == ".attribute":
                cursor.skip_balanced("(", ")")
            elif word == ".pragma":
                self._pragma()
            else:
                cursor.fail(f"unknown directive {word}", cursor.index - 1)
        return directives

    def _parse_body(self) -> None:
        cursor = self._cursor
        opening = cursor.index
        if cursor.word != "{":
            cursor.unexpected("'{' or ';'")
        self._enter()
        bottom = self._names.depth - 1
        words = cursor.words
        while self._names.depth > bottom:
            word = words[cursor.index]
            cursor.statement = cursor.index
            if word == "{":
                self._enter()
            elif word == "}":
                self._leave()
            elif word[:1] == ".":
                self._directive(word)
            elif not word:
                cursor.fail("the text ends inside this function's body", opening)
            elif words[cursor.index + 1] == ":":
                self._label(word)
            else:
                self._body.append(self._instructions.instruction())
                if self._used_bytes is not None:
                    self._narrow()

    def _narrow(self) -> None:
        """Give the last instruction what the pragma in front of it says of its bytes."""
        if self._body[-1].opcode == "ld":
            self._body[-1] = replace(self._body[-1], used_bytes=self._used_bytes)
        self._used_bytes = None

    def _enter(self) -> None:
        cursor = self._cursor
        for names in (self._names, self._label_names, self._table_names):
            names.enter()
        words = cursor.words
        for index in self._labels_in.get(cursor.index, ()):
            is_table = words[index + 2] in (".branchtargets", ".calltargets", ".callprototype")
            names = self._table_names if is_table else self._label_names
            name = words[index]
            if not names.declare(name, Label(self._unique_labels.name(name))):
                cursor.fail(f"label {name} is defined twice", index)
        cursor.index += 1

    def _leave(self) -> None:
        for names in (self._names, self._label_names, self._table_names):
            names.leave()
        self._cursor.index += 1

    def _label(self, word: str) -> None:
        cursor = self._cursor
        cursor.name("label")
        cursor.expect(":")
        match cursor.word:
            case ".branchtargets":
                cursor.index += 1
                self._table(word, lambda: self._reader.label().name)
            case ".calltargets":
                cursor.index += 1
                self._table(word, self._function_name)
            case ".callprototype":
                cursor.index += 1
                self._prototype()
                self._tables[self._table_names.meanings[word].name] = ()
            case _:
                self._labels[self._label_names.meanings[word].name] = len(self._body)

    def _table(self, name: str, entry: Callable[[], str]) -> None:
        cursor = self._cursor
        entries = [entry()]
        while cursor.take(","):
            entries.append(entry())
        cursor.expect(";")
        self._tables[self._table_names.meanings[name].name] = tuple(entries)

    def _function_name(self) -> str:
        cursor = self._cursor
        found = self._names.meanings.get(cursor.word)
        if not isinstance(found, Symbol):
            cursor.unexpected("declared function")
        cursor.index += 1
        return found.name

    def _prototype(self) -> None:
        """`(.param .b32 _) _ (.param .b64 _);`: its names mean nothing, so none is declared."""
        cursor = self._cursor
        if cursor.word == "(":
            cursor.skip_balanced("(", ")")
        cursor.name("'_'")
        if cursor.word == "(":
            cursor.skip_balanced("(", ")")
        self._directives()
        cursor.expect(";")

    def _directive(self, word: str) -> None:
        cursor = self._cursor
        cursor.index += 1
        if word == ".reg":
            self._register_declaration()
        elif word in SPACES:
            self._variable_declaration(SPACES[word])
        elif word == ".loc":
            self._location()
        elif word == ".pragma":
            self._pragma()
        else:
            cursor.fail(f"unknown directive {word}", cursor.index - 1)

    def _register_declaration(self) -> None:
        """`.reg .b32 %a, %r<12>;`; a vector register `.reg .v2 .f32 %v` is `%v.x` and `%v.y`."""
        cursor = self._cursor
        width = _WIDTHS.get(cursor.word, 1)
        if width > 1:
            cursor.index += 1
        type_ = scalar_type(cursor)
        while True:
            index = cursor.index
            name = cursor.name("name of a register")
            if cursor.take("<"):
                count = cursor.natural("number of registers")
                cursor.expect(">")
                if count * width + len(self._registers) > _MOST_REGISTERS:
                    cursor.fail("too many registers", index)
                for suffix in range(count):
                    self._declare_registers(f"{name}{suffix}", type_, width, index)
            else:
                self._declare_registers(name, type_, width, index)
            if not cursor.take(","):
                break
        cursor.expect(";")

    def _variable_declaration(self, space: StateSpace) -> None:
        cursor = self._cursor
        part = type_part(cursor)
        while True:
            index = cursor.index
            name = cursor.name("name of a variable")
            unique = self._unique.name(name)
            variables = self._variables
            if space in _STATIC:
                # A name that no text can contain.
                unique = f"{unique} of {self._function}"
                variables = self.shared_by_calls
            span = cursor.source.span(cursor.statement)
            self._declare(name, Symbol(unique), index)
            variables.append(
                declarator(cursor, part, space, unique, span, addressable=self._names.meanings)
            )
            if not cursor.take(","):
                break
        cursor.expect(";")

    def _location(self) -> None:
        """`.loc file line column`, with an optional `, function_name label, inlined_at f l c`."""
        cursor = self._cursor
        numbers = [cursor.natural("number") for _ in range(3)]
        while cursor.take(","):
            if cursor.take("function_name"):
                cursor.name("label")
                if cursor.take("+"):
                    cursor.natural("offset")
            elif cursor.take("inlined_at"):
                for _ in range(3):
                    cursor.natural("number")
            else:
                cursor.unexpected("'function_name' or 'inlined_at'")
        file = self._files.get(numbers[0], "")
        self._locations.append(SourceLocation(len(self._body), file, numbers[1]))

    def _pragma(self) -> None:
        cursor = self._cursor
        while True:
            if not cursor.word.startswith('"'):
                cursor.unexpected("string")
            if mask := _USED_BYTES.fullmatch(cursor.word):
                self._used_bytes = int(mask[1], 0)
            cursor.index += 1
            if not cursor.take(","):
                break
        cursor.expect(";")

    def _declare_registers(self, name: str, type_: ScalarType, width: int, index: int) -> None:
        """One register, or the components of a vector register and their vector."""
        if width == 1:
            self._declare_register(name, type_, index)
            return
        components: list[Operand] = []
        for axis, colour in _COMPONENTS[:width]:
            component = self._declare_register(f"{name}.{axis}", type_, index)
            self._declare(f"{name}.{colour}", component, index)
            components.append(component)
        self._declare(name, Vector(tuple(components)), index)

    def _declare_register(self, name: str, type_: ScalarType, index: int) -> Register:
        register = Register(self._unique.name(name), type_)
        self._declare(name, register, index)
        self._registers[register.name] = register
        return register

    def _declare(self, name: str, meaning: Operand, index: int) -> None:
        if not self._names.declare(name, meaning):
            self._cursor.fail(f"{name} is defined twice", index)
