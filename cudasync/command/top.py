"""`top`: shows the state of another process repeatedly, until the process ends or Ctrl-C."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.errors import CudasyncError
from cudasync.profile import snapshot_text
from cudasync.profile.remote_queries import NobodyAnswers, ask
from cudasync.profile.terminal_lines import is_terminal

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from cudasync.profile.snapshot import Look

# Escape sequences: enter the alternate screen without a cursor, and leave it; move to the upper
# left corner, clear the rest of a line, and clear the lines below.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _LINE_END, _REST = "\x1b[H", "\x1b[K\r\n", "\x1b[J"


def start(options: argparse.Namespace) -> int:
    """Show process PID; returns 0 once the process has ended, or after Ctrl-C.

    Raises CudasyncError if the first query fails.
    """
    first = ask(options.pid)
    if options.once:
        threading.Event().wait(options.interval)
        _print(options, ask(options.pid), first)
        return 0
    # Ctrl-C is the usual end.
    with suppress(KeyboardInterrupt):
        try:
            if options.json or not is_terminal(sys.stdout):
                for seen, before in _looks(options, first):
                    _print(options, seen, before)
            else:
                _draw(options, first)
        except CudasyncError as error:
            print(f"cudasync top: {error}", file=sys.stderr)
    return 0


def _looks(options: argparse.Namespace, seen: Look) -> Iterator[tuple[Look, Look | None]]:
    """Each snapshot with the one before it. Raises CudasyncError once a query fails."""
    before: Look | None = None
    while True:
        yield seen, before
        threading.Event().wait(options.interval)
        before = seen
        try:
            seen = ask(options.pid)
        except NobodyAnswers:
            # The kernel may still be ending the process, so its state there is not read.
            raise CudasyncError(f"process {options.pid} has ended") from None


def _print(options: argparse.Namespace, seen: Look, before: Look | None) -> None:
    if options.json:
        print(json.dumps(snapshot_text.with_rates(seen, before)), flush=True)
    else:
        print("\n".join([*snapshot_text.lines(seen, before), ""]), flush=True)


def _draw(options: argparse.Namespace, first: Look) -> None:
    """Draw on the terminal's alternate screen, and always leave that screen again."""
    try:
        sys.stdout.write(_ENTER)
        for seen, before in _looks(options, first):
            columns, rows = shutil.get_terminal_size()
            shown = snapshot_text.cropped(snapshot_text.lines(seen, before), columns, rows - 1)
            sys.stdout.write(_HOME + _LINE_END.join([*shown, ""]) + _REST)
            sys.stdout.flush()
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
