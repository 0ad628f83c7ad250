"""Floor 0. Splits PTX text into words, each with its position.

One regular expression does all of it. A word is the smallest unit of the grammar: an opcode
together with its dotted suffixes, a number, a string, a punctuation mark. Words have no kinds: the
first character of a word tells, and the parser knows what it expects.

True of every `Words`:
- `words` ends with one empty string, so that reading one past the last word is always safe;
- a character that begins no word is a word by itself, and the parser refuses it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from cudasync.errors import PtxError
from cudasync.ptx.ir import Span

_WORD = re.compile(
    r"""
    (?: \s+ | //[^\n]* | /\*.*?\*/ )*                     # blanks and comments before the word
    (   [A-Za-z_$%] [\w$]* (?: \. \w+ (?: ::\w+ )* )*     # name, or opcode with its suffixes
      | \. \w+ (?: ::\w+ )*                               # directive
      | \d+ \. \d* (?: [eE] [+-]? \d+ )?                  # decimal float, or a version
      | \d+ [eE] [+-]? \d+
      | \d \w*                                            # every other number
      | " (?: [^"\\\n] | \\. )* "
      | /\* .*                                            # a comment that never ends
      | .                                                 # punctuation, or something foreign
      | $
    )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

# Errors quote at most this many characters of a statement.
_QUOTED_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one text and the offset of each."""

    text: str
    file: str
    words: list[str]
    offsets: list[int]
    _line_starts: list[int] = field(repr=False)

    def span(self, index: int) -> Span:
        """Line and column of the word at `index`."""
        offset = self.offsets[index]
        line = bisect_right(self._line_starts, offset)
        return Span(line, offset - self._line_starts[line - 1] + 1)

    def error(self, message: str, index: int, start: int | None = None) -> PtxError:
        """The error for the word at `index`; `start` is the first word of its statement."""
        span = self.span(index)
        return PtxError(
            message,
            file=self.file,
            line=span.line,
            column=span.column,
            instruction=self._statement(index if start is None else start),
        )

    def _statement(self, start: int) -> str:
        """The statement from the word `start` on, without its semicolon, on one line."""
        begin = self.offsets[start]
        stops = (self.text.find(mark, begin) for mark in (";", "\n"))
        end = min((stop for stop in stops if stop >= 0), default=len(self.text))
        return " ".join(self.text[begin : min(end, begin + _QUOTED_LENGTH)].split())


def split(text: str, file: str) -> Words:
    """The words of `text`. Never fails: the parser refuses foreign characters."""
    words: list[str] = []
    offsets: list[int] = []
    for match in _WORD.finditer(text):
        words.append(match[1])
        offsets.append(match.start(1))
    if not words or words[-1]:
        words.append("")
        offsets.append(len(text))
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    return Words(text, file, words, offsets, starts)


def decode(text: str | bytes, file: str) -> str:
    """PTX as text; bytes may end with a zero byte, as C strings (and NVRTC's) do."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as broken:
            raise PtxError(
                f"the file is not UTF-8 text: byte {broken.start} is invalid", file=file
            ) from None
    return text.rstrip("\0")
