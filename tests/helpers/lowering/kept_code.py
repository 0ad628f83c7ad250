"""Code that is kept while the tests run, and no longer: of kernels, and of Python's modules.

Many tests, and the processes that they start, run the same kernels. A run finds only code that it
has made itself: its folder is new and empty, and is deleted when the run ends. The processes of a
run share it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "CUDASYNC_SOFTGPU_CACHE"
# pytest sets this variable, and processes that a test starts inherit it.
IS_INSIDE_A_TEST = "PYTEST_CURRENT_TEST" in os.environ
# xdist sets this variable in the processes of a run. They inherit the folder.
IS_ONE_OF_SEVERAL = "PYTEST_XDIST_WORKER" in os.environ


def keep_nothing() -> None:
    """Keep no code from now on. A run started by a test of another run uses that run's folder
    instead."""
    if not (IS_INSIDE_A_TEST or IS_ONE_OF_SEVERAL):
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


def keep_bytecode() -> None:
    """Let the processes that tests start keep Python's bytecode beside the code of the kernels.

    This is for users who let Python write none into the checkout: each start would compile hundreds
    of modules, which takes longer than what most of these processes do.
    """
    if sys.dont_write_bytecode and not IS_INSIDE_A_TEST:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(os.environ[VARIABLE]).parent / "bytecode")
