"""The tower. A line on the terminal that says how far an engine is, while a program waits.

The line belongs to one thread, which draws it and takes it away again: whatever interrupts the
program, nobody else has to tidy up.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.engine import engine as current_engine
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TextIO

    from cudasync.engine import Engine, Statistics

# A wait that is shorter needs no line; and how often it is drawn anew.
_SHORT_S = 0.5
_AGAIN_S = 0.2
# To the start of the line, and nothing to the right of it.
_ERASE = "\r\x1b[K"


class Progress:
    """The line, while a `with` block lasts; nothing where `file` is no terminal."""

    def __init__(self, engine: Engine, file: TextIO) -> None:
        self._engine = engine
        self._file = file
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._thread is not None:
            raise ValueError("a progress line is of one block; make another with cs.progress()")
        if not _is_terminal(self._file):
            return self
        try:
            self._thread = threading.Thread(target=self._run, name="cudasync progress", daemon=True)
            self._thread.start()
        except BaseException:
            # Interrupted behind the start: no block will end it.
            self._over.set()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        is_drawn = False
        # A terminal that is gone, or a device that is lost, is no reason to end the program.
        with suppress(OSError, ValueError, CudasyncError):
            try:
                pause_s = _SHORT_S
                while not self._over.wait(pause_s):
                    line = said(self._engine.statistics(), time.monotonic() - began)
                    columns = os.get_terminal_size(self._file.fileno()).columns or 80
                    is_drawn = True
                    self._write(_ERASE + line[: columns - 1])
                    pause_s = _AGAIN_S
            finally:
                if is_drawn:
                    self._write(_ERASE)

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


def said(counts: Statistics, passed_s: float) -> str:
    """How far an engine is, in one line; `passed_s` is for how long it was watched."""
    done = counts.host_ops + counts.device_ops + counts.failed_ops
    failed = f", {counts.failed_ops} failed" if counts.failed_ops else ""
    minutes, seconds = divmod(int(passed_s), 60)
    return f"{done} of {counts.ops} ops{failed}, {counts.ops - done} to go, {minutes}:{seconds:02}"


def _is_terminal(file: TextIO) -> bool:
    try:
        return file.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):
        # No stderr at all (pythonw, a daemon), or a closed one.
        return False


def progress(engine: Engine | None = None, *, file: TextIO | None = None) -> Progress:
    """Say on a terminal how far an engine is: `with cs.progress(engine): engine.waitall()`.

    The line is drawn on `file`, stderr if left out, once the block has lasted half a second, and
    is gone when the block is left, by Ctrl-C too. Where `file` is no terminal, nothing is done. The
    engine is the current one if left out. It counts ops since the engine was made.
    """
    return Progress(engine or current_engine(), sys.stderr if file is None else file)
