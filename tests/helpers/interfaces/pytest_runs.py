"""pytest with our plugin over a file of tests, in its own process, as a user starts it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from helpers.repository.fork_server import Done, run_warm

PLUGIN = "cudasync.pytest_plugin"
# Two streams and no event: the copy may run first. The host or `second` may wait.
RACING = """
import numpy as np
import pytest
import cudasync as cs

def copied(waits):
    first, second = cs.Stream(), cs.Stream()
    buffer, back = cs.DeviceBuffer(64), np.zeros(64, np.uint8)
    cs.memset_async(buffer, 1, stream=first)
    if waits == "host":
        first.synchronize()
    if waits == "stream":
        second.wait(first)
    cs.memcpy_async(back, buffer, stream=second)
    second.synchronize()
    return list(back)
"""


ENVIRONMENT = {"CUDASYNC_SOFTGPU_SCHEDULER": "fifo", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run_tests(folder: Path, *options: str, **environment: str) -> Done:
    """The result of `pytest -p cudasync.pytest_plugin OPTIONS` in that folder."""
    source = f"{_PRELUDE.format(folder=str(folder))}sys.exit(run(*{options!r}))"
    return run_warm(source, 200, **ENVIRONMENT, **environment)


def run_each(folder: Path, *runs: tuple[str, ...]) -> list[Done]:
    """The results of several runs in one process; each run ends before there are tests."""
    source = f"{_PRELUDE.format(folder=str(folder))}os.dup2(1, 2)\n" + "".join(
        f"print('END', int(run(*{options!r})), flush=True)\n" for options in runs
    )
    done = run_warm(source, 200, **ENVIRONMENT)
    parts = re.split(r"^END (\d+)\n", done.out, flags=re.MULTILINE)
    return [Done(int(code), out, "") for out, code in zip(parts[::2], parts[1::2], strict=False)]


_PRELUDE = """
import os, sys, pytest
os.chdir({folder!r})
def run(*options):
    plain = ["-q", "-p", "no:cacheprovider", "-p", "cudasync.pytest_plugin", "--rootdir", "."]
    return pytest.main([*plain, *options])
"""


def replays(done: Done) -> list[list[str]]:
    """The pytest arguments of each replay line."""
    lines = re.findall(r"^replay: python -m pytest (.*)$", done.out, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def counts(done: Done) -> dict[str, int]:
    """The number of tests that passed, failed, or were skipped."""
    found = re.findall(r"(\d+) (passed|failed|skipped|errors?)", done.out.splitlines()[-1])
    return {what: int(number) for number, what in found}
