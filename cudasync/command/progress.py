"""Progress on stderr: one line that changes on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time

# Without a terminal, at least this long passes before each line.
_PATIENCE_S = 5.0


class Progress:
    """One line that names the current step; `close` clears the line."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._is_terminal = sys.stderr.isatty()
        self._began = self._told = time.monotonic()
        self._is_shown = False

    def say(self, text: str) -> None:
        """Show that `text` begins."""
        if self._is_quiet:
            return
        now = time.monotonic()
        if self._is_terminal:
            print(f"\r\x1b[K{text} ...", end="", file=sys.stderr, flush=True)
            self._is_shown = True
        elif now - self._told > _PATIENCE_S:
            print(f"{text} ... ({now - self._began:.0f} s so far)", file=sys.stderr, flush=True)
            self._told = now

    def close(self) -> None:
        """Clear the line."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_shown = False
