"""Machine code that the software GPU keeps while the tests run, and no longer.

Many tests, and the processes that they start, run the same kernels. A run finds only code that it
has made itself: its folder is new and empty, and is deleted when the run ends.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "CUDASYNC_SOFTGPU_CACHE"
# pytest sets this variable, and processes that a test starts inherit it.
IS_INSIDE_A_TEST = "PYTEST_CURRENT_TEST" in os.environ


def keep_nothing() -> None:
    """Keep no code from now on. A run started by a test of another run uses that run's folder
    instead."""
    if not IS_INSIDE_A_TEST:
        os.environ[VARIABLE] = "0"


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Keep code in this new folder, and delete the folder at the end."""
    assert not list(folder.iterdir()), f"{folder} is not empty"
    before = os.environ[VARIABLE]
    os.environ[VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ[VARIABLE] = before
        shutil.rmtree(folder, ignore_errors=True)
