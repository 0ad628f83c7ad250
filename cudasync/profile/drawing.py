"""The tower. Lines at the foot of a terminal that are drawn again and again while a block lasts.

They belong to one thread, which draws them and takes them away again: whatever interrupts the
program, nobody else has to tidy up.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TextIO

# To the start of the line, and nothing to the right of it, or below it.
_ERASE, _ERASE_BELOW = "\r\x1b[K", "\r\x1b[J"


class Drawing:
    """The lines, while a `with` block lasts; nothing where `file` is no terminal."""

    # What it is called in errors and as a thread, how it is made; how soon it is drawn, how often.
    name = made_by = ""
    first_s = again_s = 0.0

    def __init__(self, file: TextIO | None) -> None:
        self._file: TextIO = sys.stderr if file is None else file
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        # How many lines are on the terminal now.
        self._drawn = 0

    def lines(self, passed_s: float, columns: int, rows: int) -> list[str]:
        """What to draw, `passed_s` after the block began; at least one line, all short enough."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise ValueError(f"a {self.name} is of one block; make another with {self.made_by}()")
        if not is_terminal(self._file):
            return self
        try:
            self._thread = threading.Thread(
                target=self._run, name=f"cudasync {self.name.split()[0]}", daemon=True
            )
            self._thread.start()
        except BaseException:
            # Interrupted behind the start: no block will end it.
            self._over.set()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        # A terminal that is gone, or a device that is lost, is no reason to end the program.
        with suppress(OSError, ValueError, CudasyncError):
            try:
                pause_s = self.first_s
                while not self._over.wait(pause_s):
                    columns, rows = os.get_terminal_size(self._file.fileno())
                    shown = self.lines(time.monotonic() - began, (columns or 80) - 1, rows or 24)
                    # The cursor stays in the last of them.
                    self._write(self._erased() + "\n".join(shown), len(shown))
                    pause_s = self.again_s
            finally:
                if self._drawn:
                    self._write(self._erased(), 0)

    def _erased(self) -> str:
        if self._drawn > 1:
            return f"\x1b[{self._drawn - 1}A{_ERASE_BELOW}"
        return _ERASE

    def _write(self, text: str, drawn: int) -> None:
        self._drawn = drawn or self._drawn
        self._file.write(text)
        self._file.flush()
        self._drawn = drawn


def is_terminal(file: TextIO) -> bool:
    """True if lines can be drawn on `file`, and taken back."""
    try:
        return file.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):
        # No stderr at all (pythonw, a daemon), or a closed one.
        return False
