"""The tower. `cs.live()` shows the state of this process on its terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.profile import snapshot_text
from cudasync.profile.snapshot import look
from cudasync.profile.terminal_lines import Drawing

if TYPE_CHECKING:
    from typing import TextIO


class Live(Drawing):
    """Engines with rates, workers, streams, waiting ops, memory, threads; also as text."""

    name, made_by = "live view", "cs.live"
    first_s, again_s = 0.1, 0.5

    def __init__(self, file: TextIO | None) -> None:
        super().__init__(file)
        self._last = look()

    def look(self) -> dict[str, Any]:
        """The same as data, as `python -m cudasync top --json` prints it.

        Rates count from the previous look.
        """
        now = look()
        made = snapshot_text.with_rates(now, self._last)
        self._last = now
        return made

    def lines(self, passed_s: float, columns: int, rows: int) -> list[str]:
        return snapshot_text.cropped(self._text(), columns, rows)

    def __str__(self) -> str:
        return "\n".join(self._text())

    def _text(self) -> list[str]:
        before, self._last = self._last, look()
        return snapshot_text.lines(self._last, before)


def live(*, file: TextIO | None = None) -> Live:
    """Show the state on a terminal: `with cs.live(): train()`, or once: `print(cs.live())`.

    It shows, for all engines, ops in flight and finished per second, the ops of each worker and
    stream, and waiting ops with the reasons; the memory of arrays; and what each thread waits for.
    It only reads, and never blocks. The view is drawn on `file` (default: stderr) twice a second.
    It is removed when the block is left, also by Ctrl-C; the program's own output goes in between.
    Nothing is done if `file` is no terminal.

    `python -m cudasync top PID` shows the same for a process that has CUDASYNC_TOP=1 in its
    environment.
    """
    return Live(file)
