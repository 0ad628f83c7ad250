"""What a program is doing now, on stderr: one line on a terminal, elsewhere only if it lasts."""

from __future__ import annotations

import sys
import time

# Where nobody watches, a program that ends within this says nothing.
_PATIENCE_S = 5.0


class Progress:
    """One line that tells what has begun; `close` takes it away again."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._is_terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._is_shown = False

    def say(self, text: str) -> None:
        """Show that `text` begins."""
        passed_s = time.monotonic() - self._began
        if self._is_quiet:
            return
        if self._is_terminal:
            print(f"\r\x1b[K{text} ...", end="", file=sys.stderr, flush=True)
            self._is_shown = True
        elif passed_s > _PATIENCE_S:
            print(f"{text} ... ({passed_s:.0f} s so far)", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_shown = False
