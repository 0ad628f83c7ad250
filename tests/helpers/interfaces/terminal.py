"""A pseudo-terminal: the output of a program, and the visible text after it."""

from __future__ import annotations

import os
import pty
import re
import select
import termios
import time

PATIENCE_S = 60
# A live view shows as many lines as there are rows, and a process may have many engines.
ROWS, COLUMNS = 200, 200
_STEP = re.compile(r"\x1b\[\??(\d*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


class Terminal:
    """A program writes to `file`; `seen` is its output so far."""

    def __init__(self) -> None:
        self._end, slave = pty.openpty()
        termios.tcsetwinsize(slave, (ROWS, COLUMNS))
        self.file = os.fdopen(slave, "w")
        self.seen = ""

    def read_until(self, pattern: str) -> None:
        # A view that redraws constantly does not extend the wait.
        until = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self._end], [], [], max(0, until - time.monotonic()))
            is_late = time.monotonic() > until
            assert ready, f"no {pattern!r} in {self.seen[-4000:]!r}"
            assert not is_late, f"no {pattern!r} in {self.seen[-4000:]!r}"
            self.seen += os.read(self._end, 4096).decode()

    def line(self) -> str:
        """The current line, for programs that draw only one."""
        self._read_all()
        assert "\n" not in self.seen
        return re.split(r"\r\x1b\[K", self.seen)[-1]

    def screen(self) -> list[str]:
        """The current lines, as far as the program has written to them."""
        self._read_all()
        lines, row, column = [""], 0, 0
        for step in _STEP.finditer(self.seen):
            text, number, letter = step.group(0), step.group(1), step.group(2)
            if text == "\r":
                column = 0
            elif text == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif letter == "A":
                row -= int(number)
            elif letter == "K":
                lines[row] = lines[row][:column]
            elif letter == "J":
                lines[row:] = [lines[row][:column]]
            elif letter is None:
                kept = lines[row].ljust(column)
                lines[row] = kept[:column] + text + kept[column + len(text) :]
                column += len(text)
            else:
                raise AssertionError(f"{text!r} is not understood here")
        return lines

    def close(self) -> None:
        self.file.close()
        os.close(self._end)

    def _read_all(self) -> None:
        while select.select([self._end], [], [], 0)[0]:
            self.seen += os.read(self._end, 4096).decode()
