"""Code that the tests keep: of kernels, and of Python's modules.

Many tests, and the processes that they start, run the same kernels. They are compiled once, and the
next runs find them: the folder is pytest's cache, which `pytest --cache-clear` empties. A file's
name is a hash of the compiler's own files, too, so a change in the compiler finds nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

VARIABLE = "CUDASYNC_SOFTGPU_CACHE"
# A folder for the runs of several checkouts, which CI sets.
SHARED = "CUDASYNC_TESTS_KEEP"
_UNTIL_THE_END = "until-the-end"
# pytest sets this variable, and processes that a test starts inherit it.
IS_INSIDE_A_TEST = "PYTEST_CURRENT_TEST" in os.environ
# xdist sets this variable in the processes of a run. They inherit the folder.
IS_ONE_OF_SEVERAL = "PYTEST_XDIST_WORKER" in os.environ


def keep_nothing() -> None:
    """Keep no code from now on. A run started by a test of another run uses that run's folder
    instead."""
    if not (IS_INSIDE_A_TEST or IS_ONE_OF_SEVERAL):
        os.environ[VARIABLE] = "0"


def keep(config: pytest.Config) -> None:
    """Keep code until the run ends, in a folder that the next run finds.

    Without pytest's cache (`-p no:cacheprovider`) the folder is deleted at the end.
    """
    if IS_INSIDE_A_TEST or IS_ONE_OF_SEVERAL:
        return
    cache = getattr(config, "cache", None)
    if SHARED in os.environ:
        parent = Path(os.environ[SHARED])
    elif cache is None:
        folder = tempfile.TemporaryDirectory(prefix="cudasync-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        parent = Path(folder.name) / _UNTIL_THE_END
    else:
        parent = cache.mkdir("cudasync")
    where = parent / "code"
    # Code is kept in no folder that others may write to, whatever the umask.
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    config.add_cleanup(partial(os.environ.__setitem__, VARIABLE, os.environ[VARIABLE]))
    os.environ[VARIABLE] = str(where)
    if sys.dont_write_bytecode:
        _keep_bytecode(parent / "bytecode", is_found_later=parent.name != _UNTIL_THE_END)


def _keep_bytecode(folder: Path, *, is_found_later: bool) -> None:
    """Keep Python's bytecode, too, for users who let Python write none into the checkout.

    Each start would compile hundreds of modules, which takes longer than what most processes of the
    tests do; and each run would compile the tests.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    if is_found_later:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(folder)
