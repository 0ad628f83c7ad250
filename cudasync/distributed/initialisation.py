"""Floor 5. `init` chooses a communicator and its devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.host.memory import CPU
from cudasync.distributed import mpi_library, nccl_library
from cudasync.distributed.argument_checks import places_of
from cudasync.distributed.errors import BackendUnavailable
from cudasync.distributed.local import LocalCommunicator
from cudasync.distributed.mpi import MpiCommunicator
from cudasync.distributed.nccl import NcclCommunicator
from cudasync.distributed.ranks import world
from cudasync.driver import current_device, device_count
from cudasync.xp.parameter_checks import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.distributed.communicator import Communicator

BACKENDS = ("auto", "local", "mpi", "nccl")
_DEBUG = "CUDASYNC_DISTRIBUTED_DEBUG"
# Variables that launchers set for their processes: Open MPI, MPICH, Intel, MVAPICH, and Slurm by
# PMIx.
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

    - "local": the devices of this process, a rank each, all driven by this process. `devices` names
      them by ordinals, Devices or "cpu", and may name a device several times.
    - "mpi": the processes that mpiexec started, a rank each, with their arrays on the one device of
      `devices`. The default is the process's number on its machine, modulo the count of devices.
      `init` blocks until all ranks are here. A collective that takes longer than `timeout` seconds
      breaks the communicator.
    - "nccl": the same between NVIDIA's GPUs, by NCCL. A process that mpiexec did not start has all
      ranks, one for each of its `devices` (default: the current device).
    - "auto": in a process that mpiexec started, "nccl" if every rank has NCCL and a GPU of its own,
      and "mpi" otherwise; in any other process "local".

    With `debug`, ranks of "mpi" compare their calls before each call. If verb, reduction, shape,
    dtype or root differ, all raise CollectiveMismatch with the lines that pushed the calls. One
    rank turns it on for all ranks. The default is CUDASYNC_DISTRIBUTED_DEBUG.

    Raises ValueError for an unknown name, no devices, or several devices for a rank of "mpi" and
    "nccl"; BackendUnavailable without mpi4py, and for "nccl" without NCCL or a GPU;
    CollectiveTimeout if a rank does not come.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
    raise_unless_seconds(timeout)
    named = None if devices is None else places_of(devices)
    if backend in ("mpi", "nccl") or (backend == "auto" and is_launched()):
        return _between_processes(backend, named, timeout, debug=_is_debugged(debug))
    if named is None:
        named = places_of(range(device_count()))
    if not named:
        raise ValueError("a communicator needs at least one device: devices=[] names none")
    return LocalCommunicator(named)


def raise_unless_seconds(timeout: Any) -> None:
    """TypeError for a timeout that is no number, ValueError if it is not positive."""
    if not isinstance(timeout, (int, float, np.integer, np.floating)):
        raise TypeError(f"timeout must be a number of seconds, not {type(timeout).__name__}")
    if not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout}")


def is_launched() -> bool:
    """True in a process that mpiexec, or another launcher of ranks, started."""
    return any(each in os.environ for each in _LAUNCHERS)


def available() -> dict[str, tuple[bool, str]]:
    """For each communicator whether it is available here, and a description or the reason.

    Queries MPI in a process of its own, which takes some tenths of a second if MPI is installed.
    """
    found = {"local": (True, "the devices of this process")}
    for name, about in (("mpi", mpi_library.about), ("nccl", nccl_library.about)):
        try:
            found[name] = True, about()
        except BackendUnavailable as error:
            found[name] = False, f"{error.reason}; {error.hint}"
    return found


def _is_debugged(asked: bool | None) -> bool:
    if asked is not None:
        return asked
    value = os.environ.get(_DEBUG, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{_DEBUG} must be 0 or 1, not {value!r}")
    return value == "1"


def _between_processes(
    backend: str, devices: list[Any] | None, timeout: float, *, debug: bool
) -> Communicator:
    is_alone = backend == "nccl" and not is_launched()
    if devices is not None and len(devices) != 1 and not (is_alone and devices):
        raise ValueError(f"a rank has one device, but devices= names {len(devices)}")
    if backend == "nccl":
        nccl_library.library()
        named = [current_device()] if devices is None else devices
        if CPU in named:
            raise ValueError("NCCL needs GPUs, but devices= names the CPU")
        if is_alone:
            return NcclCommunicator(None, named, timeout)
    ranks = world(timeout)
    number, count = mpi_library.number_on_this_machine()
    device = place(number % device_count() if devices is None else devices[0])
    if backend == "auto":
        # NCCL takes each GPU once, and all ranks have to take the same communicator.
        lacks = device == CPU or count > device_count() or not _has_nccl()
        backend = "mpi" if ranks.any([lacks], ("init", 0, timeout))[0] else "nccl"
    if backend == "nccl":
        return NcclCommunicator(ranks, [device], timeout)
    return MpiCommunicator(ranks, device, timeout, debug=debug)


def _has_nccl() -> bool:
    try:
        nccl_library.library()
    except BackendUnavailable:
        return False
    return True
