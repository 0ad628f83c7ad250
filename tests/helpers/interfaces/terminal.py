"""A pseudo-terminal: what a program draws on it, and what is to be seen after that."""

from __future__ import annotations

import os
import pty
import re
import select
import time

PATIENCE_S = 60
_STEP = re.compile(r"\x1b\[\??(\d*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


class Terminal:
    """`file` is what a program writes to, `seen` what came out of it."""

    def __init__(self) -> None:
        self._end, slave = pty.openpty()
        self.file = os.fdopen(slave, "w")
        self.seen = ""

    def read_until(self, pattern: str) -> None:
        # A view that is drawn again and again never keeps it waiting for long.
        until = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self._end], [], [], max(0, until - time.monotonic()))
            is_late = time.monotonic() > until
            assert ready, f"no {pattern!r} in {self.seen[-4000:]!r}"
            assert not is_late, f"no {pattern!r} in {self.seen[-4000:]!r}"
            self.seen += os.read(self._end, 4096).decode()

    def line(self) -> str:
        """What is on the line now, where nothing draws more than one."""
        self._read_all()
        assert "\n" not in self.seen
        return re.split(r"\r\x1b\[K", self.seen)[-1]

    def screen(self) -> list[str]:
        """The lines now, as far as they were ever written to."""
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
