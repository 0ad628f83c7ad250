"""`trace`: a script as Python would run it, under a profile.

The script's stdout is its own: the table goes to stderr, the trace to a file, and so do the page
and the picture that were asked for.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cudasync.command.arguments import CommandError
from cudasync.command.run import execute
from cudasync.profile import Profile

if TYPE_CHECKING:
    import argparse
    from types import TracebackType


def start(options: argparse.Namespace) -> int:
    """Run the script and write what it did; returns its exit status."""
    if not options.module and not Path(options.script).exists():
        raise CommandError(f"{options.script}: there is no such file")
    # What can not be written is missed before the script runs, which may take hours.
    for file in filter(None, (options.output, options.html, options.plot)):
        if not file.resolve().parent.is_dir():
            raise CommandError(f"{file}: there is no such folder")
    if options.plot:
        _check_picture(options.plot)
    return execute(options, _Saved(options))


def _check_picture(file: Path) -> None:
    """Raise CommandError for a format that matplotlib does not know, ModuleNotFoundError without
    matplotlib."""
    known = importlib.import_module("matplotlib.figure").FigureCanvasBase.filetypes
    if file.suffix and file.suffix[1:].lower() not in known:
        raise CommandError(f"{file}: pictures are {', '.join(sorted(known))}")


class _Saved:
    """A profile that is written and printed when it ends, however the script did."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._profile = Profile()
        # Resolved now: the script may change the folder it is in.
        self._files = [
            (write, file.resolve())
            for write, file in (
                (self._profile.save, options.output),
                (self._profile.html, options.html),
                (self._profile.plot, options.plot),
            )
            if file is not None
        ]

    def __enter__(self) -> None:
        self._profile.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._profile.__exit__(kind, error, traceback)
        for write, file in self._files:
            try:
                write(file)
            except OSError as failed:
                raise CommandError(f"{file}: {failed.strerror}") from failed
        print(self._profile, file=sys.stderr)
