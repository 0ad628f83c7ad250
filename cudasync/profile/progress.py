"""The tower. A line on the terminal with an engine's progress, while a program waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine import engine as current_engine
from cudasync.profile.terminal_lines import Drawing

if TYPE_CHECKING:
    from typing import TextIO

    from cudasync.engine import Engine, Statistics


class Progress(Drawing):
    """The line, during a `with` block; nothing if `file` is no terminal."""

    name, made_by = "progress line", "cs.progress"
    # A shorter wait needs no line.
    first_s, again_s = 0.5, 0.2

    def __init__(self, engine: Engine, file: TextIO | None) -> None:
        super().__init__(file)
        self._engine = engine

    def lines(self, passed_s: float, columns: int, rows: int) -> list[str]:
        return [said(self._engine.statistics(), passed_s)[:columns]]


def said(counts: Statistics, passed_s: float) -> str:
    """An engine's progress in one line; `passed_s` is the time since the block began."""
    done = counts.host_ops + counts.device_ops + counts.failed_ops
    failed = f", {counts.failed_ops} failed" if counts.failed_ops else ""
    minutes, seconds = divmod(int(passed_s), 60)
    return f"{done} of {counts.ops} ops{failed}, {counts.ops - done} to go, {minutes}:{seconds:02}"


def progress(engine: Engine | None = None, *, file: TextIO | None = None) -> Progress:
    """Show an engine's progress on a terminal: `with cs.progress(engine): engine.waitall()`.

    The line is drawn on `file` (default: stderr) once the block has lasted half a second. It is
    removed when the block is left, also by Ctrl-C. Nothing is done if `file` is no terminal. The
    default engine is the current one. The line counts ops since the engine was made.
    """
    return Progress(engine or current_engine(), file)
