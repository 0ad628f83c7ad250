"""Programs in their own processes, forked from a process with finished imports.

A fresh start with the imports of the software GPU takes longer than most programs of the tests. So
one process imports everything, touches no driver, and forks a child for each program. The child has
its own session, and ends as an interpreter ends. Tests of a process's start do not use this.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple

from helpers.repository.checkout import ROOT

FOLDERS = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
# The child leaves the loop, and its program has a `__main__` of its own. From Python 3.12 on, a
# program that forks with threads is warned. Our programs may do so.
#
# What is imported here is frozen: an interpreter that ends looks through all objects several times,
# which took four fifths of a short program's time. The program's own objects are not frozen, so
# that they end as in an interpreter that was started for them.
PARENT = """
import faulthandler, gc, json, os, sys, types, warnings
import numpy
import cudasync.array, cudasync.driver, cudasync.engine, cudasync.testing, cudasync.softgpu.jit
import cudasync.profile, cudasync.random, cudasync.xp, cuda.bindings.nvrtc
gc.collect()
gc.freeze()
for order in sys.stdin:
    child = os.fork()
    if child == 0:
        break
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
os.setsid()
order = json.loads(order)
for number, name in enumerate([os.devnull, order["out"], order["err"]]):
    os.dup2(os.open(name, os.O_RDWR), number)
os.environ.clear()
os.environ.update(order["environment"])
warnings.filterwarnings("ignore", "This process .* is multi-threaded")
sys.modules["__main__"] = types.ModuleType("__main__")
exec(compile(order["source"], "<string>", "exec"), vars(sys.modules["__main__"]))
"""


class Done(NamedTuple):
    """The end of a program, and what it printed."""

    code: int
    out: str
    err: str


@functools.cache
def _parent() -> subprocess.Popen[bytes]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": FOLDERS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    atexit.register(parent.communicate)
    return parent


def pids() -> tuple[int, ...]:
    """The process that forks, if there is one."""
    return (_parent().pid,) if _parent.cache_info().currsize else ()


def run_warm(source: str, deadline_s: float, **environment: str) -> Done:
    """Run `source` to its end. Past the deadline, kill it and fail."""
    parent = _parent()
    assert parent.stdin is not None
    assert parent.stdout is not None
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        order = {
            "source": source,
            "environment": {**os.environ, "PYTHONPATH": FOLDERS, **environment},
            "out": out.name,
            "err": err.name,
        }
        parent.stdin.write(json.dumps(order).encode() + b"\n")
        child = int(parent.stdout.readline())
        in_time = False
        try:
            in_time = bool(select.select([parent.stdout], [], [], deadline_s)[0])
        finally:
            if not in_time:
                # The child may not have its own session yet.
                for kill in (os.killpg, os.kill):
                    with contextlib.suppress(ProcessLookupError):
                        kill(child, signal.SIGKILL)
            code = int(parent.stdout.readline())
        done = Done(code, out.read(), err.read())
    assert in_time, f"still running after {deadline_s} s:\n{done.out}{done.err}"
    return done


def run_command(*words: str, deadline_s: float = 60) -> Done:
    """Run `python -m cudasync` with these words, from this checkout."""
    program = "import sys\nfrom cudasync.command import main\n"
    program += f"sys.exit(main({list(words)!r}))"
    return run_warm(program, deadline_s, PYTHONPATH=str(ROOT))
