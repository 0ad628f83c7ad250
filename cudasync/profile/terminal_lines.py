"""The tower. Lines at the foot of a terminal that are redrawn during a block.

One thread draws the lines and removes them, so they go whatever interrupts the program.
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

# Go to the start of the line, and erase the text to the right, or also below.
_ERASE, _ERASE_BELOW = "\r\x1b[K", "\r\x1b[J"


class Drawing:
    """The lines, during a `with` block; nothing if `file` is no terminal."""

    # The name in errors and of the thread, the public function that makes it, the delay of the
    # first drawing, and the time between drawings.
    name = made_by = ""
    first_s = again_s = 0.0

    def __init__(self, file: TextIO | None) -> None:
        self._file: TextIO = sys.stderr if file is None else file
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        # The number of lines that are on the terminal now.
        self._drawn = 0

    def lines(self, passed_s: float, columns: int, rows: int) -> list[str]:
        """The lines to draw, `passed_s` after the block began: at least one, all short enough."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise ValueError(f"a {self.name} covers one block: make another with {self.made_by}()")
        if not is_terminal(self._file):
            return self
        try:
            self._thread = threading.Thread(
                target=self._run, name=f"cudasync {self.name.split()[0]}", daemon=True
            )
            self._thread.start()
        except BaseException:
            # Interrupted after the start: `__exit__` will not run, so end the thread here.
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
        # A closed terminal, or a lost device, must not end the program.
        with suppress(OSError, ValueError, CudasyncError):
            try:
                pause_s = self.first_s
                while not self._over.wait(pause_s):
                    columns, rows = os.get_terminal_size(self._file.fileno())
                    shown = self.lines(time.monotonic() - began, (columns or 80) - 1, rows or 24)
                    # The cursor stays in the last line.
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
    """True if lines can be drawn on `file` and erased."""
    try:
        return file.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):
        # No stderr at all (pythonw, a daemon), or a closed one.
        return False
