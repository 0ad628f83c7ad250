"""The time from a new elementwise function to its first result, in separate processes.

Each process first compiles one function, untimed, so that the compiler's own start counts once.
Then it times new functions. The second process finds on disk what the first process compiled.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from bench.checkout import ROOT

if TYPE_CHECKING:
    from bench.harness.measurement import Session

FIRST_MOST_MS, KEPT_MOST_MS = 120, 5

PROGRAM = """
import json, sys, time
import numpy as np
import cudasync as cs

def new(number):
    # By the binary digits of the number: no two give the same tree.
    @cs.elementwise
    def function(x, y):
        for digit in f"{number:06b}":
            x = x + y if digit == "1" else x * y
        return x
    return function

x = cs.array(np.ones(1000, np.float32))
new(0)(x, x).numpy()
taken = []
for number in range(1, 1 + int(sys.argv[1])):
    function = new(number)
    start = time.perf_counter()
    made = function(x, x)
    made.wait()
    taken.append(1000 * (time.perf_counter() - start))
    assert made.numpy()[3] == 1 + number.bit_count(), made
print(json.dumps(taken))
"""


def measure_compiling(session: Session) -> None:
    """Report the median of each process."""
    functions = session.parameter("new_functions", small=1, large=9)
    with tempfile.TemporaryDirectory() as folder:
        here = {
            **os.environ,
            "XDG_CACHE_HOME": folder,
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        }
        here.pop("CUDASYNC_SOFTGPU_CACHE", None)
        for words, most in (("new", FIRST_MOST_MS), ("kept on the disk", KEPT_MOST_MS)):
            session.pause(f"bench_arrays.compile: {words}")
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, str(functions)],
                env=here,
                capture_output=True,
                text=True,
                check=True,
            )
            median = statistics.median(json.loads(done.stdout))
            # A small run measures nothing, so it has no limit.
            limit = None if session.small else most
            session.measure(f"bench_arrays.compile: {words}", median, "ms", limit)
