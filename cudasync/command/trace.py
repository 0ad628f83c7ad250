"""`trace`: a script as Python would run it, under a profile.

The script's stdout is its own: the table goes to stderr, the trace to a file.
"""

from __future__ import annotations

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
    if not options.output.resolve().parent.is_dir():
        raise CommandError(f"{options.output}: there is no such folder")
    return execute(options, _Saved(options.output.resolve()))


class _Saved:
    """A profile that is written and printed when it ends, however the script did."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._profile = Profile()

    def __enter__(self) -> None:
        self._profile.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._profile.__exit__(kind, error, traceback)
        try:
            self._profile.save(self._file)
        except OSError as failed:
            raise CommandError(f"{self._file}: {failed.strerror}") from failed
        print(self._profile, file=sys.stderr)
