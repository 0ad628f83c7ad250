"""`trace`: a script as Python would run it, under a profile.

The script's stdout is its own: the table goes to stderr, the trace to a file, and so do the page
and the picture that were asked for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cudasync.command.run import execute, raise_unless_found
from cudasync.command.saving import Files
from cudasync.profile import Profile

if TYPE_CHECKING:
    import argparse
    from types import TracebackType


def start(options: argparse.Namespace) -> int:
    """Run the script and write what it did; returns its exit status."""
    raise_unless_found(options)
    files = Files(trace=options.output, page=options.html, picture=options.plot)
    return execute(options, _Saved(files))


class _Saved:
    """A profile that is written and printed when it ends, however the script did."""

    def __init__(self, files: Files) -> None:
        self._profile = Profile()
        self._files = files

    def __enter__(self) -> None:
        self._profile.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._profile.__exit__(kind, error, traceback)
        self._files.write(self._profile)
        print(self._profile, file=sys.stderr)
