"""Floor 1. What NVRTC says of a text, read: its first complaint as a CompileError.

NVRTC writes, as its front end does for people:

    scale.cu(3): error: identifier "undefined" is undefined
          x[0] = undefined;
                 ^

the line two columns to the right, and a mark that counts in bytes. What is about a name expression
is told of a file of its own, whose line is a pragma with the name.
"""

from __future__ import annotations

import re
from itertools import pairwise

from cudasync.errors import CompileError

_ERROR = re.compile(r"^(.*)\((\d+)\): (?:catastrophic |internal )?error(?: #[\w-]+)?: (.*)$")
# nvrtc: error: unrecognized option --nonsense found
_PLACELESS = re.compile(r"^nvrtc: (?:fatal )?error *: (.*)$")
_OF_NAMES = "__nv_name_map"
_NAME = re.compile(r"#pragma nv_mangled_name (.*)")
_INDENTATION = "  "


def compile_error(log: str, code: str, *, source: str, name: str) -> CompileError:
    """The error for this log; `code` is NVRTC's result, for where the log tells no more."""
    lines = log.splitlines()
    for index, line in enumerate(lines):
        found = _ERROR.match(line)
        if found is not None:
            return _at_a_line(found, lines[index + 1 :], log, source=source, name=name)
        found = _PLACELESS.match(line)
        if found is not None:
            return CompileError(found[1], file=name, log=log)
    return CompileError(code, file=name, log=log)


def _at_a_line(
    found: re.Match[str], after: list[str], log: str, *, source: str, name: str
) -> CompileError:
    file, line, message = found[1], int(found[2]), found[3]
    quoted, column = _quoted(after)
    if file == _OF_NAMES:
        named = _NAME.search(quoted)
        expression = named[1].strip() if named else quoted.strip()
        return CompileError(f"name expression {expression!r}: {message}", file=name, log=log)
    own = source.split("\n")
    if file == name and 0 < line <= len(own):
        text = own[line - 1].rstrip("\r")
        # A very long line is quoted in part.
        if text.rstrip() != quoted.rstrip():
            column = 0
        quoted = text
    return CompileError(message, file=file, line=line, column=column, source=quoted, log=log)


def _quoted(after: list[str]) -> tuple[str, int]:
    """The line of the source below a complaint, and the column that is marked; "" and 0 if none."""
    for text, mark in pairwise(after):
        if not text.startswith(_INDENTATION):
            return "", 0
        if mark.strip() == "^":
            quoted = text.removeprefix(_INDENTATION)
            before = quoted.encode()[: mark.index("^") - len(_INDENTATION)]
            return quoted, len(before.decode(errors="ignore")) + 1
    return "", 0
