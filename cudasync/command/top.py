"""`top`: what goes on in another process, again and again until that ends, or Ctrl-C."""

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

# The other screen of a terminal, without a cursor, and back; to its upper left corner, and for
# each line nothing to the right of it, and then nothing below.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _LINE_END, _REST = "\x1b[H", "\x1b[K\r\n", "\x1b[J"


def start(options: argparse.Namespace) -> int:
    """Show process PID; 0 once it has ended, or Ctrl-C. Raises CudasyncError if the first ask
    fails."""
    first = ask(options.pid)
    if options.once:
        threading.Event().wait(options.interval)
        _print(options, ask(options.pid), first)
        return 0
    # Left by Ctrl-C, as any such program is.
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
    """Each look with the one before it. Raises CudasyncError once the process can not be asked."""
    before: Look | None = None
    while True:
        yield seen, before
        threading.Event().wait(options.interval)
        before = seen
        try:
            seen = ask(options.pid)
        except NobodyAnswers:
            # The kernel may be still at it: what it says of such a process is not looked at.
            raise CudasyncError(f"process {options.pid} has ended") from None


def _print(options: argparse.Namespace, seen: Look, before: Look | None) -> None:
    if options.json:
        print(json.dumps(snapshot_text.with_rates(seen, before)), flush=True)
    else:
        print("\n".join([*snapshot_text.lines(seen, before), ""]), flush=True)


def _draw(options: argparse.Namespace, first: Look) -> None:
    """Draw on the terminal's other screen, and leave it whatever happens."""
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
