"""Floor 5. The one place that loads mpi4py: module, dtypes, and memory that MPI still uses."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections import deque
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from cudasync.distributed.errors import BackendUnavailable

# The name of a call, its number, and its seconds.
Limit: TypeAlias = tuple[str, int, float]
# Counts of MPI are C ints.
MOST = 2**31 - 1
# Dtypes that MPI computes with, by NumPy's names; bool as bytes of 0 and 1.
_TYPES = {
    "int8": "INT8_T",
    "int16": "INT16_T",
    "int32": "INT32_T",
    "int64": "INT64_T",
    "uint8": "UINT8_T",
    "uint16": "UINT16_T",
    "uint32": "UINT32_T",
    "uint64": "UINT64_T",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "bool": "UINT8_T",
}
_OPS = {"sum": "SUM", "mean": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_ASK = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version().splitlines()[0].split(",")[0].rstrip("\\0"))
"""
# The module, once it is known to accept calls from all threads.
_ASKED: set[Any] = set()
# Dead ranks, by their numbers on the communicator that found them dead.
DEAD: set[int] = set()
# Open MPI's name of the setting.
TOLERANT = "OMPI_MCA_mpi_ft_enable"
# Requests that failed or passed their deadline, with the memory that MPI may still use. The list is
# for all communicators, because a request's own communicator may be gone.
LET_GO: deque[tuple[list[Any], Any]] = deque()


def library() -> Any:
    """The module `mpi4py.MPI`, which starts MPI when it is first loaded.

    BackendUnavailable if it is missing, or if MPI accepts calls of one thread alone.
    """
    known = sys.modules.get("mpi4py.MPI")
    return known if known is not None and known in _ASKED else _loaded()


def _loaded() -> Any:
    try:
        MPI = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise BackendUnavailable("mpi", str(error), hint="pip install 'cudasync[mpi]'") from None
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise BackendUnavailable(
            "mpi",
            "MPI was initialised without MPI_THREAD_MULTIPLE",
            hint="let cudasync initialise MPI, or request this level",
        )
    _ASKED.add(MPI)
    return MPI


def about() -> str:
    """Name and version of the MPI, found without starting it. BackendUnavailable without MPI."""
    hint = "pip install 'cudasync[mpi]'"
    if importlib.util.find_spec("mpi4py") is None:
        raise BackendUnavailable("mpi", "mpi4py is not installed", hint=hint)
    # In a process of its own: a process that has loaded MPI without starting it cannot use it.
    asked = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=60, check=False
    )
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no message"])[-1]
        raise BackendUnavailable("mpi", last, hint=f"load this machine's MPI, or {hint}")
    return asked.stdout.strip()


def end_what_was_let_go() -> None:
    # One thread alone takes each entry, and drops it once MPI has finished with it.
    for _ in range(len(LET_GO)):
        with suppress(IndexError, library().Exception):
            requests, used = LET_GO.popleft()
            left = [each for each in requests if not each.Test()]
            if left:
                LET_GO.append((left, used))


def has_lost_a_rank() -> bool:
    """True if a rank of the program is known to be dead, on any communicator."""
    if DEAD or os.environ.get(TOLERANT) != "1":
        return bool(DEAD)
    MPI = library()
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return False
    # A probe makes MPI process messages that have arrived.
    MPI.COMM_SELF.Iprobe()
    return int(MPI.COMM_WORLD.Get_failed().size) > 0


def number_on_this_machine() -> tuple[int, int]:
    """This rank's number among the ranks on its machine, from 0, and their count."""
    MPI = library()
    near = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    found = int(near.rank), int(near.size)
    near.Free()
    return found


@cache
def raise_unless_it_computes(dtype: np.dtype[Any]) -> None:
    """TypeError for a dtype that no reduction of MPI takes."""
    # The cache keeps each accepted dtype, since NumPy builds the name again each time. An exception
    # is not cached.
    if dtype.name not in _TYPES:
        raise TypeError(f"MPI does not compute with {dtype}: it takes {', '.join(_TYPES)}")


@cache
def reduction(name: str) -> Any:
    return getattr(library(), _OPS[name])


@cache
def type_of(dtype: np.dtype[Any]) -> Any:
    """MPI's type of numbers; bytes for bool."""
    return getattr(library(), _TYPES[dtype.name])


def as_numbers(x: Any) -> list[Any]:
    plain = x.view(np.uint8) if x.dtype == np.bool_ else x
    return [plain, type_of(x.dtype)]


def as_bytes(x: Any) -> list[Any]:
    """The buffer for an array that MPI only moves."""
    return [x.reshape(-1).view(np.uint8), library().BYTE]
