"""Cellar. The top-level statements of a PTX text: their words, and the names they define.

True of every `Statement`: its words are `words[start:end]` of the text's words, and no two
statements overlap. The parser has accepted the text before, so nothing is checked again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from cudasync.ptx.parsing.function import STATEMENT_STARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAME: Final = re.compile(r"[A-Za-z_$%][\w$]*", re.ASCII)
# Directives that end without a semicolon.
_HEADER: Final = frozenset({".version", ".target", ".address_size"})
_SPACES: Final = frozenset({".global", ".const", ".shared", ".tex", ".surf"})
_OPENING: Final = frozenset("({[")
_CLOSING: Final = frozenset(")}]")


class Strength(IntEnum):
    """The strength of a definition: the strongest one counts, among equals the first."""

    DECLARED = 0
    TENTATIVE = 1
    WEAK = 2
    STRONG = 3


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement; `names` is empty if it defines no name that other modules could use."""

    start: int
    end: int
    names: tuple[str, ...]
    strength: Strength
    is_local: bool
    is_function: bool
    is_header: bool


def statements(words: Sequence[str]) -> Iterator[Statement]:
    """The statements of a text, in order."""
    index = 0
    while words[index]:
        end = _end(words, index)
        yield _described(words, index, end)
        index = end


def _end(words: Sequence[str], start: int) -> int:
    """The end of the statement that begins at `start`."""
    first = words[start]
    if first in (".version", ".address_size"):
        return start + 2
    if first in (".target", ".file"):
        end = start + (2 if first == ".target" else 3)
        while words[end] == ",":
            end += 2
        return end
    depth = 0
    has_body = first == ".section"
    is_function = False
    for index in range(start, len(words)):
        word = words[index]
        if is_function and not depth and word in STATEMENT_STARTS:
            return index
        if word in (".func", ".entry") and not depth:
            has_body = is_function = True
        elif word in _OPENING:
            depth += 1
        elif word in _CLOSING:
            depth -= 1
            if not depth and word == "}" and has_body:
                return index + 1
        elif word == ";" and not depth:
            return index + 1
    return len(words) - 1


def _described(words: Sequence[str], start: int, end: int) -> Statement:
    linkage = set()
    index = start
    while index < end and words[index] in (".visible", ".extern", ".weak", ".common"):
        linkage.add(words[index])
        index += 1
    is_function = False
    names: tuple[str, ...] = ()
    strength = Strength.STRONG
    # .attribute(...) may stand between the linkage and its object.
    while index < end and words[index] == ".attribute":
        index = _behind(words, index + 1)
    if words[index] in (".func", ".entry"):
        is_function = True
        index += 1
        while words[index] in (".attribute", "("):
            index = _behind(words, index + (words[index] == ".attribute"))
        names = (words[index],)
        if words[end - 1] != "}":
            strength = Strength.DECLARED
    elif words[index] in _SPACES:
        names = tuple(_declared(words, index, end))
    if ".extern" in linkage:
        strength = Strength.DECLARED
    elif strength is not Strength.DECLARED and ".weak" in linkage:
        strength = Strength.WEAK
    elif ".common" in linkage:
        strength = Strength.TENTATIVE
    return Statement(
        start,
        end,
        names,
        strength,
        is_local=bool(names) and not linkage and words[index - 1] != ".entry",
        is_function=is_function,
        is_header=words[start] in _HEADER,
    )


def _behind(words: Sequence[str], index: int) -> int:
    """The index behind the parenthesis that opens at `index`."""
    depth = 0
    while True:
        depth += (words[index] == "(") - (words[index] == ")")
        index += 1
        if not depth:
            return index


def _declared(words: Sequence[str], start: int, end: int) -> Iterator[str]:
    """The names that a statement about variables declares: the first name of each declarator."""
    depth = 0
    is_open = True
    for index in range(start, end):
        word = words[index]
        if word in _OPENING:
            depth += 1
        elif word in _CLOSING:
            depth -= 1
        elif word == "," and not depth:
            is_open = True
        elif is_open and not depth and _NAME.fullmatch(word):
            yield word
            is_open = False
