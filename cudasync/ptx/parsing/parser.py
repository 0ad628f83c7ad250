"""Floor 0. Parses PTX text into a Module: directives, variables, functions.

`parse` is the only entry point. For any text it returns a Module or raises PtxError.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.errors import PtxError
from cudasync.ptx.ir import Function, Linkage, Module, Operand, Symbol, Variable
from cudasync.ptx.parsing.cursor import Cursor
from cudasync.ptx.parsing.function import FunctionParser
from cudasync.ptx.parsing.lexer import decode, split
from cudasync.ptx.parsing.scopes import labels_by_brace
from cudasync.ptx.parsing.variables import SPACES, declarator, type_part
from cudasync.ptx.specials import SPECIALS
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from cudasync.ptx.parsing.instruction import Suffixes

NEWEST_VERSION = (9, 9)

_VERSION = re.compile(r"(\d{1,2})\.(\d{1,2})", re.ASCII)
_TARGET = re.compile(r"(sm|compute)_[1-9]\d{1,2}[af]?", re.ASCII)
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_FILE_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_LINKAGE = {
    ".visible": Linkage.VISIBLE,
    ".extern": Linkage.EXTERN,
    ".weak": Linkage.WEAK,
    # Tentative definitions, which other modules may repeat.
    ".common": Linkage.WEAK,
}


def parse(text: str | bytes, file: str = "<ptx>") -> Module:
    """Parse PTX that was emitted by a compiler or written by hand.

    `file` names the text in errors. In the result every name is resolved, every label is found and
    every opcode is one of the PTX ISA. Otherwise PtxError names the line, the column and the
    statement. If a function is declared before it is defined, the module has only the definition.
    """
    return _ModuleParser(decode(text, file), file).parse()


def _source_files(words: list[str]) -> dict[int, str]:
    """The valid `.file` entries. They may stand after the statements that refer to them."""
    found: dict[int, str] = {}
    index = -1
    for _ in range(words.count(".file")):
        index = words.index(".file", index + 1)
        match words[index + 1 : index + 3]:
            case [number, name] if _FILE_NUMBER.fullmatch(number):
                found[int(number)] = _unescaped(name.strip('"'))
    return found


def _unescaped(text: str) -> str:
    """The text of a string in which compilers write other letters than ASCII as `\\303\\251`."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_byte_of, text.encode()).decode(errors="replace")


def _byte_of(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 0xFF]) if code.isdigit() else code


class _ModuleParser:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._cursor = Cursor(split(text, file))
        self._labels_in = labels_by_brace(self._cursor.words)
        self._names: dict[str, Operand] = {}
        self._variables: dict[str, Variable] = {}
        self._functions: dict[str, Function] = {}
        self._files = _source_files(self._cursor.words)
        self._suffixes: dict[str, Suffixes] = {}

    def parse(self) -> Module:
        version = self._version()
        target = self._target()
        address_size = self._address_size()
        cursor = self._cursor
        while cursor.word:
            cursor.statement = cursor.index
            self._statement()
        return Module(
            self._file,
            version,
            target,
            address_size,
            tuple(self._variables.values()),
            tuple(self._functions.values()),
        )

    def _version(self) -> tuple[int, int]:
        cursor = self._cursor
        if not cursor.word:
            raise PtxError("the text is empty", file=self._file)
        if not cursor.take(".version"):
            cursor.unexpected("'.version'")
        match = _VERSION.fullmatch(cursor.word)
        if match is None:
            cursor.unexpected("version number")
        version = (int(match[1]), int(match[2]))
        if not (1, 0) <= version <= NEWEST_VERSION:
            cursor.fail(f"unknown PTX version {version[0]}.{version[1]}")
        cursor.index += 1
        return version

    def _target(self) -> str:
        cursor = self._cursor
        cursor.statement = cursor.index
        cursor.expect(".target")
        target = cursor.word
        if not _TARGET.fullmatch(target):
            cursor.unexpected("target architecture")
        cursor.index += 1
        while cursor.take(","):
            cursor.name("target option")
        return target

    def _address_size(self) -> int:
        """Since PTX ISA 7 only 64 exists; older texts name the size."""
        cursor = self._cursor
        cursor.statement = cursor.index
        if not cursor.take(".address_size"):
            return 64
        size = cursor.natural("address size")
        if size not in (32, 64):
            cursor.fail(f"address size {size} must be 32 or 64", cursor.index - 1)
        return size

    def _statement(self) -> None:
        cursor = self._cursor
        linkage = Linkage.LOCAL
        while cursor.word in _LINKAGE:
            linkage = _LINKAGE[cursor.word]
            cursor.index += 1
        while cursor.take(".attribute"):
            cursor.skip_balanced("(", ")")
        word = cursor.word
        if word in (".entry", ".func"):
            cursor.index += 1
            self._function(linkage, is_kernel=word == ".entry")
        elif word in SPACES:
            cursor.index += 1
            self._variable(SPACES[word], is_extern=linkage is Linkage.EXTERN)
        elif word == ".file":
            self._source_file()
        elif word == ".section":
            self._section()
        elif word == ".alias":
            self._alias()
        elif word == ".pragma":
            self._pragma()
        else:
            cursor.unexpected("module-level directive")

    def _function(self, linkage: Linkage, *, is_kernel: bool) -> None:
        cursor = self._cursor
        while cursor.take(".attribute"):
            cursor.skip_balanced("(", ")")
        # A function may call itself, so its name is declared before its body is read.
        start = cursor.index
        if cursor.word == "(":
            cursor.skip_balanced("(", ")")
        name = cursor.name("name of a function")
        name_index = cursor.index - 1
        cursor.index = start
        earlier = self._functions.get(name)
        if earlier is None and name in self._names:
            cursor.fail(f"{name} is defined twice", name_index)
        self._names[name] = Symbol(name)
        parser = FunctionParser(
            cursor, SPECIALS | self._names, self._files, self._labels_in, self._suffixes
        )
        statement = cursor.statement
        function = parser.parse(linkage, is_kernel=is_kernel)
        self._variables.update((each.name, each) for each in parser.shared_by_calls)
        cursor.statement = statement
        if earlier is not None:
            if earlier.is_kernel != is_kernel:
                cursor.fail(f"{name} is both a kernel and a function", name_index)
            if function.is_declaration:
                return
            if not earlier.is_declaration:
                cursor.fail(f"{name} is defined twice", name_index)
            del self._functions[name]
        self._functions[name] = function

    def _variable(self, space: StateSpace, *, is_extern: bool) -> None:
        cursor = self._cursor
        if space in (StateSpace.LOCAL, StateSpace.PARAM):
            cursor.fail(
                f"a .{space.value} variable must be declared in a function", cursor.index - 1
            )
        part = type_part(cursor)
        while True:
            index = cursor.index
            name = cursor.name("name of a variable")
            earlier = self._variables.get(name)
            if name in self._names and not (earlier and (earlier.is_extern or is_extern)):
                cursor.fail(f"{name} is defined twice", index)
            self._names[name] = Symbol(name)
            span = cursor.source.span(cursor.statement)
            variable = declarator(
                cursor, part, space, name, span, is_extern=is_extern, addressable=self._names
            )
            if earlier is None or earlier.is_extern:
                self._variables[name] = variable
            if not cursor.take(","):
                break
        cursor.expect(";")

    def _source_file(self) -> None:
        """`.file 1 "saxpy.cu", 1700000000, 1234`: only checked here, see `_source_files`."""
        cursor = self._cursor
        cursor.expect(".file")
        cursor.natural("number of the file")
        self._string()
        while cursor.take(","):
            cursor.natural("number")

    def _section(self) -> None:
        """Debug information: it contains nothing that executes."""
        cursor = self._cursor
        cursor.expect(".section")
        if not cursor.word.startswith("."):
            cursor.unexpected("name of a section")
        cursor.index += 1
        cursor.skip_balanced("{", "}")

    def _alias(self) -> None:
        """`.alias name, function;`: a second name for the function."""
        cursor = self._cursor
        cursor.expect(".alias")
        index = cursor.index
        alias = cursor.name("name of a function")
        cursor.expect(",")
        target = self._functions.get(cursor.word)
        if target is None or target.is_declaration:
            cursor.fail(f"{cursor.word} is not a function defined here")
        cursor.index += 1
        cursor.expect(";")
        declared = self._functions.get(alias)
        if declared is None or not declared.is_declaration:
            cursor.fail(f"{alias} is not a function declared here", index)
        self._functions[alias] = replace(target, name=alias, linkage=declared.linkage)

    def _pragma(self) -> None:
        self._cursor.expect(".pragma")
        self._string()
        self._cursor.expect(";")

    def _string(self) -> str:
        cursor = self._cursor
        word = cursor.word
        if not word.startswith('"') or len(word) < 2:
            cursor.unexpected("string")
        cursor.index += 1
        return word[1:-1]
