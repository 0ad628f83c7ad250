"""`run`: someone else's CUDA program, on the software GPU.

To the script it must look as if Python had started it: its arguments, its module search path,
its `__main__`, its exit status, its tracebacks without a frame of ours.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from typing import TYPE_CHECKING

from cudasync.command.arguments import CommandError
from cudasync.driver.probe import ensure_driver

if TYPE_CHECKING:
    import argparse
    from pathlib import Path
    from types import TracebackType


def start(options: argparse.Namespace) -> int:
    """Put the software GPU in place and run the script; returns its exit status."""
    script: Path = options.script
    if not script.exists():
        raise CommandError(f"{script}: there is no such file")
    _install(options)
    # A file's folder leads the module search path; of a folder or an archive runpy sees to it.
    if script.is_file():
        sys.path[0] = str(script.resolve().parent)
    sys.argv = [str(script), *options.arguments]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except KeyboardInterrupt as error:
        _report(error, script)
        return 128 + signal.SIGINT
    except Exception as error:
        _report(error, script)
        return 1
    return 0


def _install(options: argparse.Namespace) -> None:
    # Settings go through the environment, so that processes which the script starts and which
    # use cudasync themselves get the same ones.
    os.environ["CUDASYNC_DEVICE"] = "soft"
    if options.devices is not None:
        os.environ["CUDASYNC_SOFTGPU_DEVICES"] = str(options.devices)
    if options.scheduler is not None:
        os.environ["CUDASYNC_SOFTGPU_SCHEDULER"] = options.scheduler
    if options.no_memcheck:
        os.environ["CUDASYNC_MEMCHECK"] = "0"
    try:
        ensure_driver()
    except ValueError as error:
        raise CommandError(str(error)) from error


def _report(error: BaseException, script: Path) -> None:
    """Print the traceback as Python would have, from the script's first frame on."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(script):
        trace = trace.tb_next
    # A script that does not compile has no frame at all, and its error says where.
    sys.excepthook(type(error), error.with_traceback(trace), trace)
