"""The two processes that bench_collectives times, started by `cudasync launch`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from multiprocessing.connection import Listener
from pathlib import Path
from typing import TYPE_CHECKING

from bench.checkout import ROOT
from cudasync.command import mpiexec
from cudasync.command.arguments import CommandError

if TYPE_CHECKING:
    from contextlib import ExitStack

PROGRAM = ROOT / "bench" / "distributed" / "collective_rank.py"
COUNT = 2


class Ranks:
    """All ranks do the same, and the slowest one counts."""

    def __init__(self, closing: ExitStack) -> None:
        folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="cudasync-bench-"))
        address = str(Path(folder) / "orders")
        listener = closing.enter_context(Listener(address, "AF_UNIX"))
        job = subprocess.Popen(
            [sys.executable, "-m", "cudasync", "launch", "-n", str(COUNT), PROGRAM, address],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        closing.callback(job.wait)
        self.lines = []
        closing.callback(self.end)
        for _ in range(COUNT):
            line = listener.accept()
            line.recv()
            self.lines.append(line)

    def ask(self, name: str, *arguments: object) -> list:
        """The answer of each rank; raises the error of a rank."""
        for line in self.lines:
            line.send((name, *arguments))
        answers = [line.recv() for line in self.lines]
        for each in answers:
            if isinstance(each, Exception):
                raise each
        return answers

    def end(self) -> None:
        """End the ranks: they end once their sockets are closed."""
        for line in self.lines:
            line.close()


def lacking() -> str:
    """The reason why there are no ranks here, or "" if there are."""
    try:
        import mpi4py  # noqa: F401

        mpiexec.find()
    except (ImportError, CommandError) as error:
        return str(error)
    return ""
