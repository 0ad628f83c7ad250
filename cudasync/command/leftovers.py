"""Finds and ends processes with a mark in their environment; also a script for other hosts.

The file imports nothing of cudasync, so that other hosts can run it by its path.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "CUDASYNC_LAUNCHED_BY"


def marked(mark: str) -> Iterator[int]:
    """The processes of this machine that carry the mark."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def end(mark: str) -> None:
    """Kill the processes that carry the mark."""
    for process in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    end(sys.argv[1])
