"""Floor 0. One instruction: its guard, its opcode with suffixes, its operands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Guard, Instruction, Operand, Register
from cudasync.ptx.opcodes import OPCODES
from cudasync.ptx.parsing.operand_types import misfit
from cudasync.ptx.types import TYPE_NAMES, ScalarType

if TYPE_CHECKING:
    from cudasync.ptx.parsing.cursor import Cursor
    from cudasync.ptx.parsing.operands import OperandReader

# An opcode, its modifiers and its types, separately.
Suffixes = tuple[str, tuple[str, ...], tuple[ScalarType, ...]]


class InstructionReader:
    """Reads instructions at `cursor`.

    `suffixes` remembers every dotted opcode that was split before: a text has few.
    """

    __slots__ = ("_cursor", "_reader", "_suffixes")

    def __init__(
        self, cursor: Cursor, reader: OperandReader, suffixes: dict[str, Suffixes]
    ) -> None:
        self._cursor = cursor
        self._reader = reader
        self._suffixes = suffixes

    def instruction(self) -> Instruction:
        """The instruction here, with its semicolon."""
        cursor = self._cursor
        start = cursor.index
        guard = self._guard() if cursor.word == "@" else None
        opcode_index = cursor.index
        opcode, modifiers, types = self._opcode()
        operands = self._operands(opcode)
        if not cursor.take(";"):
            cursor.unexpected("';' or ','" if operands else "operand or ';'")
        least, most = OPCODES[opcode]
        if not least <= len(operands) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            cursor.fail(f"{opcode} takes {wanted} operands, not {len(operands)}", opcode_index)
        source = cursor.source
        text = source.text[source.offsets[start] : source.offsets[cursor.index - 1] + 1]
        if "\n" in text:
            text = " ".join(text.split())
        span = source.span(start)
        instruction = Instruction(opcode, modifiers, types, operands, guard, span, text)
        if (complaint := misfit(instruction)) is not None:
            cursor.fail(complaint, opcode_index)
        return instruction

    def _guard(self) -> Guard:
        cursor = self._cursor
        cursor.expect("@")
        negated = cursor.take("!")
        found = self._reader.names.meanings.get(cursor.word)
        if not isinstance(found, Register):
            cursor.fail(f"{cursor.word} is not declared as a register")
        if found.type is not ScalarType.PRED:
            cursor.fail(f"{cursor.word} is not a predicate")
        cursor.index += 1
        return Guard(found, negated)

    def _opcode(self) -> Suffixes:
        """The opcode with its suffixes, which may be separate words: `add .s32`."""
        cursor = self._cursor
        word = cursor.word
        if not word:
            cursor.unexpected("instruction")
        cursor.index += 1
        while cursor.words[cursor.index][:1] == ".":
            word += cursor.words[cursor.index]
            cursor.index += 1
        found = self._suffixes.get(word)
        if found is None:
            found = _suffix(word)
            if found[0] not in OPCODES:
                cursor.index = cursor.index - 1
                if not re.match(r"[A-Za-z]", word):
                    cursor.unexpected("instruction")
                cursor.fail("unknown instruction")
            self._suffixes[word] = found
        return found

    def _operands(self, opcode: str) -> tuple[Operand, ...]:
        cursor = self._cursor
        reader = self._reader
        if cursor.word == ";":
            return ()
        if opcode == "call":
            return reader.call()
        if opcode == "bra":
            return (reader.label(),)
        operands = [reader.operand()]
        while cursor.take(","):
            if opcode == "brx":
                operands.append(reader.label(table=True))
            else:
                operands.append(reader.operand())
        return tuple(operands)


def _suffix(word: str) -> Suffixes:
    opcode, *suffixes = word.split(".")
    modifiers = tuple(suffix for suffix in suffixes if suffix not in TYPE_NAMES)
    types = tuple(TYPE_NAMES[suffix] for suffix in suffixes if suffix in TYPE_NAMES)
    return opcode, modifiers, types
