"""Programs in their own processes, with a deadline: for programs that may hang, fork or end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
from pathlib import Path

from helpers.repository.checkout import ROOT
from helpers.repository.fork_server import run_warm

PRELUDE = """
import faulthandler, gc, os, signal, sys, threading, weakref
faulthandler.dump_traceback_later({deadline_s}, exit=True)
import numpy as np
import cudasync as cs
from cudasync.testing import Latch
PATIENCE_S = {deadline_s}
"""


def start(command: list[str], deadline_s: float, **environment: str) -> tuple[int, str]:
    """Run `command` to its end; return its exit code and all its output.

    Past the deadline the command and all its child processes are killed, and the call fails.
    """
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=deadline_s + 5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        raise AssertionError(f"still running after {deadline_s} s:\n{printed}") from None
    return process.returncode, printed


def run_text(source: str, deadline_s: float, **environment: str) -> tuple[int, str]:
    """`start([python, "-c", source])`, forked: for tests that are not about a process's start."""
    in_one = "import os; os.dup2(1, 2)\n"
    done = run_warm(in_one + textwrap.dedent(source), deadline_s, **environment)
    return done.code, done.out


def run_module(
    name: str, *arguments: object, deadline_s: float, **environment: str
) -> tuple[int, str]:
    """`start([python, "-m", name, *arguments])`, forked as well."""
    words = [name, *map(str, arguments)]
    source = f"""
        import runpy, sys
        sys.argv = {words!r}
        runpy.run_module({name!r}, run_name="__main__", alter_sys=True)
    """
    return run_text(source, deadline_s, **environment)


def document(printed: str) -> object:
    """The JSON in a command's output, behind its messages about progress."""
    return json.loads(printed[printed.index("{") :])


def interrupt(process: subprocess.Popen[str]) -> None:
    """Send SIGINT to a process that waits in the kernel, or is about to.

    A signal just before the system call would be seen only after it.
    """
    stat = Path(f"/proc/{process.pid}/stat")
    # The state of the main thread stands behind the name in parentheses.
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        assert process.poll() is None, "it has ended by itself"
    process.send_signal(signal.SIGINT)


def run_program(body: str, *, deadline_s: float = 20.0, **environment: str) -> tuple[int, str]:
    """Run `body`, with the library imported. Past the deadline the process prints its stacks."""
    source = PRELUDE.format(deadline_s=deadline_s) + textwrap.dedent(body)
    done = run_warm(source, deadline_s + 5, **environment)
    return done.code, done.out + done.err


def assert_runs_clean(body: str, *, deadline_s: float = 20.0, **environment: str) -> None:
    """`body` must end by itself, with exit code 0 and without output."""
    code, printed = run_program(body, deadline_s=deadline_s, **environment)
    assert code == 0, f"ended with {code}:\n{printed}"
    assert not printed, f"printed:\n{printed}"
