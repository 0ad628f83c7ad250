"""The tower. `cs.live()`: what goes on in this process, on its terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.profile import view
from cudasync.profile.drawing import Drawing
from cudasync.profile.looking import look

if TYPE_CHECKING:
    from typing import TextIO


class Live(Drawing):
    """Engines with rates, workers, streams, what waits, memory, threads; also as text."""

    name, made_by = "live view", "cs.live"
    first_s, again_s = 0.1, 0.5

    def __init__(self, file: TextIO | None) -> None:
        super().__init__(file)
        self._last = look()

    def look(self) -> dict[str, Any]:
        """The same as data, as `python -m cudasync top --json` prints it. Rates are those since
        the look before this one."""
        now = look()
        made = view.with_rates(now, self._last)
        self._last = now
        return made

    def lines(self, passed_s: float, columns: int, rows: int) -> list[str]:
        return view.cropped(self._text(), columns, rows)

    def __str__(self) -> str:
        return "\n".join(self._text())

    def _text(self) -> list[str]:
        before, self._last = self._last, look()
        return view.lines(self._last, before)


def live(*, file: TextIO | None = None) -> Live:
    """Show on a terminal what goes on: `with cs.live(): train()`, or once: `print(cs.live())`.

    For all engines: ops in flight and got over per second, what each worker and stream does, what
    waits and for what; memory of arrays; and what each thread waits for. It only looks, and never
    blocks. The view is drawn on `file`, stderr if left out, twice a second, and is gone when the
    block is left, by Ctrl-C too; what the program prints meanwhile goes between. Where `file` is no
    terminal, nothing is done.

    `python -m cudasync top PID` shows the same of a process that has CUDASYNC_TOP=1 in its
    environment.
    """
    return Live(file)
