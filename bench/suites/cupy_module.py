"""One file of CuPy's tests in this process, with a line of JSON for each step.

    python -m cudasync run bench/suites/cupy_module.py FILE RECORD [SKIP ...]

FILE is from the checkout that CUPY_CHECKOUT names. CUPY_EVERY=N runs every Nth of its tests, and
CUPY_AT_MOST=N draws N tests of the file. Tests named after RECORD are left out. cupy_suite.py
calls this program.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import os
import random

import pytest

from bench.suites.nvidia_module import count_commands, run


class Sample:
    """A pytest plugin that keeps a part of a file's tests, the same tests in each process.

    The tests are drawn by their names, with the file's name as the seed of the draw.
    """

    def __init__(self, file: str, every: int, at_most: int) -> None:
        self._file = file
        self._every = every
        self._at_most = at_most

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = items[:: self._every]
        if self._at_most:
            self._draw(items)

    def _draw(self, items: list[pytest.Item]) -> None:
        names = sorted({item.nodeid for item in items})
        count = min(self._at_most, len(names))
        drawn = set(random.Random(self._file).sample(names, count))
        items[:] = [item for item in items if item.nodeid in drawn]


def main(file: str, path: str, *skipped: str) -> int:
    """Run the tests that are not skipped; the exit status is 0 unless the process itself fails."""
    count_commands()
    os.chdir(Path(os.environ["CUPY_CHECKOUT"]))
    sample = Sample(
        file, int(os.environ.get("CUPY_EVERY", "1")), int(os.environ.get("CUPY_AT_MOST", "0"))
    )
    return run(path, skipped, "", [file, "-m", "not slow"], [sample])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
