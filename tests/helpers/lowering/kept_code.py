"""Machine code that the software GPU keeps while the tests run, and for no longer.

Many tests, and the processes that they start, run the same kernels. What a run finds it has made
itself: its folder is new and empty, and gone when the run ends.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "CUDASYNC_SOFTGPU_CACHE"
# A process that a test starts has what pytest says of that test.
IS_INSIDE_A_TEST = "PYTEST_CURRENT_TEST" in os.environ


def keep_nothing() -> None:
    """From now on, but in a run that a test of another run started: there that one's folder is."""
    if not IS_INSIDE_A_TEST:
        os.environ[VARIABLE] = "0"


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Keep code in this folder, which is new, and take it away at the end."""
    assert not list(folder.iterdir()), f"{folder} is not empty"
    before = os.environ[VARIABLE]
    os.environ[VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ[VARIABLE] = before
        shutil.rmtree(folder, ignore_errors=True)
