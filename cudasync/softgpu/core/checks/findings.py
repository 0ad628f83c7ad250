"""Cellar. Findings of checks: reported once for each pair of places, counted every time.

A finding is identified by its kind, and the lines and verbs of its accesses. A suppression is a
line `kind:pattern` of a file. It silences findings of the kind if any line of their text matches
the shell pattern. `#` begins a comment.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS: Final = ("mem", "race", "init", "sync", "leak")
DEFAULT_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class Access:
    """One side of a finding, for people and for JSON. Empty texts and 0 stand for unknown."""

    what: str
    verb: str
    site: str
    stream: str = ""
    ptx_line: int = 0
    source: str = ""
    thread: str = ""
    launch: str = ""

    def describe(self) -> str:
        line = f", PTX line {self.ptx_line}" if self.ptx_line else ""
        source = f" ({self.source})" if self.source else ""
        stream = f" in {self.stream}" if self.stream else ""
        thread = f", {self.thread}" if self.thread else ""
        how = f"recorded at {self.site}, launched at {self.launch}"
        if not self.launch:
            how = f"called at {self.site}"
        return f"{self.verb} by {self.what}{thread}{line}{source}{stream}, {how}"


@dataclass(slots=True)
class Finding:
    """One defect. `count` says how often it occurred."""

    kind: str
    text: str
    accesses: list[Access] = field(default_factory=list)
    memory: str = ""
    missing: str = ""
    count: int = 1

    @property
    def key(self) -> tuple[object, ...]:
        # Compilers make several PTX lines of one source line, for example by unrolling.
        lines = [a.source if a.thread and a.source else str(a.ptx_line) for a in self.accesses]
        accesses = zip(self.accesses, lines, strict=True)
        sides = tuple(sorted((a.what, a.verb, a.site, line) for a, line in accesses))
        return self.kind, sides or self.text

    def describe(self) -> str:
        """The whole finding, with one line for each part."""
        lines = [f"{self.kind}: {self.text}"]
        lines += [f"    {access.describe()}" for access in self.accesses]
        lines += [f"    {part}" for part in (self.memory, self.missing) if part]
        return "\n".join(lines)


class Findings:
    """The findings of one check, in the order in which they were made."""

    def __init__(self, suppressions: Iterable[str] = (), most: int = 0, *, tell: bool) -> None:
        """At most `most` different findings are kept (0: DEFAULT_MOST); others are only counted."""
        self._most = most or DEFAULT_MOST
        self._tells = tell
        self._patterns = [_pattern(each) for each in suppressions]
        self._found: dict[tuple[object, ...], Finding] = {}
        self.suppressed = 0
        self.left_out = 0
        # The unchecked parts, in the order of occurrence.
        self.not_checked: list[str] = []

    def add(self, finding: Finding) -> None:
        """Keep a finding, or count it if it is known."""
        known = self._found.get(finding.key)
        if known is not None:
            known.count += 1
            return
        text = finding.describe()
        if any(
            kind in (finding.kind, "*")
            and any(fnmatchcase(line, f"*{pattern}*") for line in text.splitlines())
            for kind, pattern in self._patterns
        ):
            self.suppressed += 1
            return
        if len(self._found) >= self._most:
            self.left_out += 1
            return
        self._found[finding.key] = finding
        if self._tells:
            sys.stderr.write(f"cudasync check: {text}\n")

    def pass_over(self, what: str) -> None:
        """Report once that something is not checked, and why."""
        if what not in self.not_checked:
            self.not_checked.append(what)
            sys.stderr.write(f"cudasync check: not checked: {what}\n")

    def __len__(self) -> int:
        """The number of different findings kept."""
        return len(self._found)

    def summary(self) -> str:
        """The summary in one line."""
        counts = [
            f"{sum(f.kind == kind for f in self._found.values())} {kind}"
            for kind in KINDS
            if any(f.kind == kind for f in self._found.values())
        ]
        more = f", {self.left_out} more not reported" if self.left_out else ""
        more += f", {self.suppressed} suppressed" if self.suppressed else ""
        more += f"; not checked: {len(self.not_checked)}" if self.not_checked else ""
        return (", ".join(counts) or "nothing") + f" found{more}"

    def report(self) -> dict[str, object]:
        """The report, for JSON."""
        return {
            "findings": [asdict(finding) for finding in self._found.values()],
            "suppressed": self.suppressed,
            "left_out": self.left_out,
            "not_checked": self.not_checked,
            "summary": self.summary(),
        }


def lines_of(text: str) -> list[str]:
    """The suppressions of a file."""
    lines = [line.split("#", 1)[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def _pattern(line: str) -> tuple[str, str]:
    kind, colon, pattern = line.partition(":")
    if not colon or kind not in (*KINDS, "*") or not pattern:
        raise DriverFailure(
            INVALID_VALUE, f"{line!r} is not a suppression: write KIND:PATTERN, as in race:*relax*"
        )
    return kind, pattern.strip()
