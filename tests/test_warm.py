"""The fork server: each child has its own settings, and no bad end of a child ends the server."""

from __future__ import annotations

import pytest
from helpers.repository.fork_server import run_warm

ENDS = {
    "print('out')": (0, "out\n", ""),
    "import sys; sys.exit(3)": (3, "", ""),
    "import sys; print('err', file=sys.stderr)": (0, "", "err\n"),
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": (-9, "", ""),
    "import atexit; atexit.register(print, 'last')": (0, "last\n", ""),
    "class A:\n    def __del__(self): self.show('gone')\na = A(); a.show = print": (
        0,
        "gone\n",
        "",
    ),
    "import os; print(os.environ['MINE'], os.getsid(0) == os.getpid())": (0, "1 True\n", ""),
}


@pytest.mark.parametrize("source", ENDS)
def test_a_program_ends_as_one_that_was_started(source):
    assert run_warm(source, 60, MINE="1") == ENDS[source]


def test_an_error_has_its_traceback_and_the_next_program_runs():
    done = run_warm("1 / 0", 60)
    assert done.code == 1
    assert done.err.endswith("ZeroDivisionError: division by zero\n")
    assert run_warm("import os; print('MINE' in os.environ)", 60).out == "False\n"


def test_a_program_that_hangs_is_killed_and_the_next_one_runs():
    with pytest.raises(AssertionError, match="still running after"):
        run_warm("import signal; signal.pause()", 0.5)
    assert run_warm("print('next')", 60).out == "next\n"
