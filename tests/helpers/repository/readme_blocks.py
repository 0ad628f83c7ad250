"""The fenced blocks of the README, for the tests and for CI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers.repository.checkout import ROOT


@dataclass(frozen=True)
class Block:
    """One fenced block: its language ("" for plain), the number of its first line, and its text."""

    language: str
    line: int
    text: str


def blocks(file: Path = ROOT / "README.md") -> list[Block]:
    """Every fenced block of the README, or of another file, in order."""
    found: list[Block] = []
    lines: list[str] | None = None
    language = ""
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        if line.startswith("```") and lines is None:
            lines, language = [], line.removeprefix("```").strip()
        elif line.startswith("```") and lines is not None:
            found.append(Block(language, number - len(lines), "\n".join(lines) + "\n"))
            lines = None
        elif lines is not None:
            lines.append(line)
    return found
