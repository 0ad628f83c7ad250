"""Floor 5. `init`: which communicator, on which devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cudasync.distributed.errors import BackendUnavailable
from cudasync.distributed.local import LocalCommunicator
from cudasync.driver import device_count
from cudasync.xp.places import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.distributed.communicator import Communicator

BACKENDS = ("auto", "local", "mpi")
_DEBUG = "CUDASYNC_DISTRIBUTED_DEBUG"
# What launchers tell the processes that they start: Open MPI's, MPICH's, Intel's, MVAPICH's, and
# Slurm's by PMIx.
_LAUNCHERS = (
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_SIZE",
    "PMIX_RANK",
)


def init(
    backend: str = "auto",
    *,
    devices: Sequence[Any] | None = None,
    timeout: float = 300.0,
    debug: bool | None = None,
) -> Communicator:
    """A communicator of all ranks.

    "local": the devices of this process, a rank each, all driven by it; `devices` names them,
    ordinals, Devices or "cpu", and may name one several times. "mpi": the processes that mpiexec
    started, a rank each, with their arrays on the one device of `devices` (default: the device with
    the number that the process has on its machine, modulo their count); blocks until all are here,
    and a collective that takes longer than `timeout` seconds breaks it. "auto" is "mpi" in a
    process that mpiexec started, else "local".

    With `debug`, between processes, ranks compare their calls before each: where verb, reduction,
    shape, dtype or root differ, all raise CollectiveMismatch with the lines that pushed them. It
    is on for all where it is on for one rank; left out, CUDASYNC_DISTRIBUTED_DEBUG=1 says so.

    Raises ValueError for another name, no devices, and several for "mpi"; BackendUnavailable
    without mpi4py; CollectiveTimeout where a rank does not come.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend is one of {', '.join(BACKENDS)}, not {backend!r}")
    if backend == "mpi" or (backend == "auto" and is_launched()):
        return _between_processes(devices, timeout, _is_debugged(debug))
    given = range(device_count()) if devices is None else devices
    found = [place(each) for each in given]
    if not found:
        raise ValueError("a communicator takes one device and more: devices=[] names none")
    return LocalCommunicator(found)


def is_launched() -> bool:
    """True in a process that mpiexec, or another launcher of ranks, started."""
    return any(each in os.environ for each in _LAUNCHERS)


def available() -> dict[str, tuple[bool, str]]:
    """For each communicator whether it can be had here, and what it is or why not.

    Asks MPI in a process of its own: some tenths of a second where there is one.
    """
    from cudasync.distributed import mpi_library

    found = {"local": (True, "the devices of this process")}
    try:
        found["mpi"] = True, mpi_library.about()
    except BackendUnavailable as error:
        found["mpi"] = False, f"{error.reason}; {error.hint}"
    return found


def _is_debugged(asked: bool | None) -> bool:
    if asked is not None:
        return asked
    value = os.environ.get(_DEBUG, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{_DEBUG} is 0 or 1, not {value!r}")
    return value == "1"


def _between_processes(devices: Sequence[Any] | None, timeout: float, debug: bool) -> Communicator:
    from cudasync.distributed import mpi_library
    from cudasync.distributed.mpi import MpiCommunicator

    if devices is not None and len(devices) != 1:
        raise ValueError(f"a rank of MPI has one device, devices= names {len(devices)}")
    if not timeout > 0:
        raise ValueError(f"timeout is a positive number of seconds, not {timeout}")
    ranks = mpi_library.world(timeout)
    if devices is None:
        devices = [mpi_library.number_on_this_machine() % device_count()]
    return MpiCommunicator(ranks, place(devices[0]), timeout, debug=debug)
