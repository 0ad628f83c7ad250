"""Floor 0. A cursor: a position in the words of a text, and the few ways to advance it.

Every reader of the grammar shares one cursor. A word that does not fit raises a PtxError at that
word. `statement` is the index of the first word of the statement being read; the error quotes that
statement.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from cudasync.ptx.ir import Integer
from cudasync.ptx.parsing.constants import number

if TYPE_CHECKING:
    from cudasync.ptx.parsing.lexer import Words

_NAME = re.compile(r"[A-Za-z_$%][\w$]*", re.ASCII)

# Alignments have 32 bits.
_MOST_BITS = 32


class Cursor:
    """The parser's position in `source`."""

    __slots__ = ("index", "source", "statement", "words")

    def __init__(self, source: Words) -> None:
        self.source = source
        self.words = source.words
        self.index = 0
        self.statement = 0

    @property
    def word(self) -> str:
        """The word here; empty at the end of the text."""
        return self.words[self.index]

    def fail(self, message: str, index: int | None = None) -> NoReturn:
        """Raise an error at word `index`, by default here."""
        at = self.index if index is None else index
        raise self.source.error(message, at, min(self.statement, at))

    def unexpected(self, wanted: str) -> NoReturn:
        """Raise an error: a word other than `wanted` stands here."""
        if self.word.startswith("/*"):
            self.fail("the comment has no end: close it with */")
        found = f"found {self.word!r}" if self.word else "the text ends here"
        self.fail(f"{wanted} expected, {found}")

    def take(self, word: str) -> bool:
        """Step over `word` if it stands here."""
        if self.words[self.index] == word:
            self.index += 1
            return True
        return False

    def expect(self, word: str) -> None:
        """Step over `word`, which must stand here."""
        if not self.take(word):
            self.unexpected(repr(word))

    def name(self, what: str) -> str:
        """Step over an identifier and return it."""
        word = self.word
        if not _NAME.fullmatch(word):
            self.unexpected(what)
        self.index += 1
        return word

    def natural(self, what: str) -> int:
        """Step over an unsigned integer and return it."""
        found = number(self.word)
        if not isinstance(found, Integer):
            self.unexpected(what)
        self.index += 1
        return found.value

    def power_of_two(self, what: str) -> int:
        """Step over an unsigned integer that must be a power of two."""
        value = self.natural(what)
        if value.bit_count() != 1:
            self.fail(f"{what} must be a power of two, not {value}", self.index - 1)
        if value.bit_length() > _MOST_BITS:
            self.fail(f"{what} {value} is too large", self.index - 1)
        return value

    def skip_balanced(self, opening: str, closing: str) -> None:
        """Step over the text from `opening`, which stands here, to the matching `closing`."""
        begin = self.index
        self.expect(opening)
        depth = 1
        while depth:
            word = self.word
            if not word:
                self.fail(f"{opening!r} is never closed", begin)
            depth += (word == opening) - (word == closing)
            self.index += 1
