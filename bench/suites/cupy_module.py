"""One file of CuPy's tests in this process, with a line of JSON for each step.

    python -m cudasync run bench/suites/cupy_module.py FILE RECORD [SKIP ...]

FILE is from the checkout that CUPY_CHECKOUT names. CUPY_EVERY=N runs each Nth of its tests. Tests
named after RECORD are left out. cupy_suite.py calls this program.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import os

import pytest

from bench.suites import journal
from bench.suites.nvidia_module import Recorder, count_commands


class Sample:
    """A pytest plugin that keeps each Nth test, the same tests in each process."""

    def __init__(self, every: int) -> None:
        self._every = every

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = items[:: self._every]


def main(file: str, path: str, *skipped: str) -> int:
    """Run the tests that are not skipped; the exit status is 0 unless the process itself fails."""
    count_commands()
    os.chdir(Path(os.environ["CUPY_CHECKOUT"]))
    # A module of theirs may have the name of a file in this folder.
    sys.path.remove(str(Path(__file__).resolve().parent))
    with open(path, "a", encoding="utf-8") as record:
        recorder = Recorder(record, "", set(skipped))
        status = pytest.main(
            [file, "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"],
            plugins=[Sample(int(os.environ.get("CUPY_EVERY", "1"))), recorder],
        )
        if recorder.is_lost:
            journal.write(record, again=True)
        elif status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            return int(status)
        else:
            journal.write(record, over=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
