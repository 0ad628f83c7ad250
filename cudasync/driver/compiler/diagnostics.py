"""Floor 1. NVRTC's log parsed: its first error as a CompileError.

NVRTC writes, like a compiler on a terminal:

    scale.cu(3): error: identifier "undefined" is undefined
          x[0] = undefined;
                 ^

the line indented by two columns, and a mark that counts in bytes. An error of a name expression is
reported for a special file; its line is a pragma with the name.
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
    """The error for this log; `code` is NVRTC's result, used if the log has no error."""
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
        # NVRTC quotes a very long line in part.
        if text.rstrip() != quoted.rstrip():
            column = 0
        quoted = text
    return CompileError(message, file=file, line=line, column=column, source=quoted, log=log)


def _quoted(after: list[str]) -> tuple[str, int]:
    """The source line below an error, and the marked column; "" and 0 if none."""
    for text, mark in pairwise(after):
        if not text.startswith(_INDENTATION):
            return "", 0
        if mark.strip() == "^":
            quoted = text.removeprefix(_INDENTATION)
            before = quoted.encode()[: mark.index("^") - len(_INDENTATION)]
            return quoted, len(before.decode(errors="ignore")) + 1
    return "", 0
