"""`trace`: runs a script as Python does, under a profile.

The script keeps its stdout: the table goes to stderr, and the trace goes to a file. A page and a
picture go to files too, if wanted.
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
    """Run the script and write its profile; returns the script's exit status."""
    raise_unless_found(options)
    files = Files(trace=options.output, page=options.html, picture=options.plot)
    return execute(options, _Saved(files))


class _Saved:
    """A profile that is written and printed at its end, even if the script failed."""

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
