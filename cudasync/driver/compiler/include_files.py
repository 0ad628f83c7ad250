"""Floor 1. The files that a CUDA C text may include, so that a change of one compiles it anew.

NVRTC looks for `#include "x.h"` beside the including file, and for every include in the folders of
-I. Its choice depends on macros, so this takes more: every file that any include, also a disabled
one, finds in any of these places. A surplus file costs a needless compilation.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from cudasync.kept import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A continued line counts as one line. An include counts anywhere, also in a comment or a string:
# only a full C++ lexer could tell these apart.
_CONTINUED = re.compile(r"\\\r?\n")
_GAP = r"(?:[ \t]|/\*.*?\*/)*"
_INCLUDE = re.compile(
    rf"(?:(?:#|%:){_GAP}(?:include|include_next|import|embed)\b"
    rf"|\b__has_(?:include|include_next|embed)\b{_GAP}\(){_GAP}([^\n]*)"
)
_NAME = re.compile(r'"([^"]+)"|<([^>]+)>')
_MOST_FILES = 10_000


def included(
    source: str,
    beside: str,
    folders: Sequence[str],
    *,
    at_once: Sequence[str] = (),
    installed: Sequence[str] = (),
) -> str | None:
    """A digest of all files that `source` may include; None if they cannot be determined.

    `beside` is the source's own folder, `folders` are those of -I, and `at_once` names the files
    that an option includes. Headers in `installed`, which are among `folders`, change only with
    their installation: they count by size and time, and their own includes are not followed.
    Built-in headers are not found, and so do not count.
    """
    seen: dict[str, bytes | None] = {}
    theirs = tuple(os.path.join(os.path.normpath(folder), "") for folder in installed)
    waiting = [(source, beside)]
    for header in at_once:
        waiting.append((f'#include "{header}"', beside))
    while waiting:
        text, place = waiting.pop()
        for name in _names(text):
            if name is None or len(seen) > _MOST_FILES:
                return None
            for folder in (place, beside, *folders):
                path = os.path.normpath(os.path.join(folder or ".", name))
                if path in seen:
                    continue
                if path.startswith(theirs):
                    seen[path] = _mark(path)
                    continue
                seen[path] = content = _content(path)
                if content is not None:
                    waiting.append((content.decode("latin-1"), os.path.dirname(path)))
    parts = []
    for path, content in sorted(seen.items()):
        if content is not None:
            parts += [path, content.decode("latin-1")]
    return key_of(*parts)


def _names(text: str) -> Iterator[str | None]:
    """The names in a text's includes; None for an include by a macro."""
    for found in _INCLUDE.finditer(_CONTINUED.sub("", text)):
        name = _NAME.match(found[1])
        yield None if name is None else name[1] or name[2]


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _mark(path: str) -> bytes | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return f"{found.st_size} {found.st_mtime_ns}".encode()
