"""Floor 1. The choice of the driver of this process: made once, before the first call.

`cuda.bindings` opens libcuda.so.1 on its first call and keeps the result, good or bad. So the
probe asks the dynamic loader itself, and puts the software GPU in place before that call. A process
uses one driver from its first call to its last. A spawned child probes for itself; a forked child
cannot use CUDA at all, and gets an error that says so.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
from typing import TYPE_CHECKING, NamedTuple

from cuda.bindings import driver

from cudasync.driver.result import check
from cudasync.errors import CudasyncError
from cudasync.locks import Lock

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

LIBRARY = "libcuda.so.1"
VARIABLE = "CUDASYNC_DEVICE"

# The data symbol that only the software GPU's library exports.
_SOFTWARE_SYMBOL = "softgpu_slots"

_SUCCESS = 0
_NO_DEVICE = 100


class Choice(NamedTuple):
    """The driver of this process: `kind` is "cuda" or "soft", `why` is a clause for the user."""

    kind: str
    why: str


_choice: Choice | None = None
_lock = Lock()
_forked = False


def ensure_driver() -> Choice:
    """Choose and initialise the driver at the first call; later calls return the choice.

    CUDASYNC_DEVICE=cuda demands a real device, soft the software GPU, and auto (or nothing) takes a
    real device if there is one. Raises CudasyncError if the demand cannot be met; a later call then
    tries again.
    """
    global _choice
    if _forked:
        raise CudasyncError(
            "CUDA was used before this process was forked and cannot be used in it: "
            "start processes with multiprocessing.get_context('spawn')"
        )
    if _choice is None:
        with _lock:
            if _choice is None:
                choice = _choose(os.environ.get(VARIABLE) or "auto")
                check(driver.cuInit(0), "cuInit")
                _choice = choice
    return _choice


def place_software_gpu() -> None:
    """Make the software GPU this process's driver, without any call to it, not even cuInit.

    For programs that expect an uninitialised driver, as at the start of Python. Raises
    CudasyncError if a real driver is loaded, or the software GPU is not installed.
    """
    with _lock:
        _choose("soft")


def chosen() -> Choice:
    """The driver of this process and the reason; chooses one if there is none yet."""
    return ensure_driver()


def forked() -> bool:
    """True in a child that was forked after the driver was chosen: its handles are invalid."""
    return _forked


def _choose(wish: str) -> Choice:
    if wish not in ("auto", "cuda", "soft"):
        raise CudasyncError(f"{VARIABLE}={wish!r}: set it to auto, cuda or soft")
    loaded = _loaded()
    if loaded is not None and hasattr(loaded, _SOFTWARE_SYMBOL):
        if wish == "cuda":
            raise CudasyncError(
                f"{VARIABLE}=cuda, but this process already uses the software "
                f"GPU: start a new process"
            )
        return Choice("soft", "the software GPU was already in place")
    if wish == "soft":
        _install_software_gpu(f"{VARIABLE}=soft")
        return Choice("soft", f"{VARIABLE}=soft")
    trouble = _trouble_with_real_driver()
    if not trouble:
        return Choice("cuda", "a CUDA driver with a device was found")
    if wish == "cuda":
        raise CudasyncError(f"{VARIABLE}=cuda, but there is no usable CUDA driver: {trouble}")
    _install_software_gpu(trouble)
    return Choice("soft", trouble)


def _loaded() -> ctypes.CDLL | None:
    """The driver library that the process has loaded, if any."""
    try:
        return ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _trouble_with_real_driver() -> str:
    """Why no real device can be used, as a clause; "" if one can."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return f"no CUDA driver ({LIBRARY}) was found"
    count = ctypes.c_int(0)
    code = library.cuInit(0)
    if code == _SUCCESS:
        code = library.cuDeviceGetCount(ctypes.byref(count))
    if code == _SUCCESS and count.value > 0:
        return ""
    _unload(library)
    if code in (_SUCCESS, _NO_DEVICE):
        return "the CUDA driver sees no device"
    return f"the CUDA driver does not start (error {code} from cuInit)"


def _unload(library: ctypes.CDLL) -> None:
    """Unload a driver without a device, so that its name is free again.

    glibc resolves libcuda.so.1 to a loaded library of that name, so the software GPU could not take
    its place otherwise.
    """
    close = ctypes.CDLL(None).dlclose
    close.argtypes = (ctypes.c_void_p,)
    close(library._handle)


def _install_software_gpu(trouble: str) -> None:
    if _loaded() is not None:
        raise CudasyncError(
            f"{trouble}, but its library is loaded already, so the software GPU cannot replace "
            f"it: restart with {VARIABLE}=soft"
        )
    if importlib.util.find_spec("llvmlite") is None:
        raise CudasyncError(
            f'{trouble}, and the software GPU is not installed: pip install "cudasync[soft]"'
        )
    try:
        _software_gpu().install(force=True)
    except ValueError as error:
        # `install` got no values, so the invalid one came from the environment.
        raise CudasyncError(
            f"wrong setting of the software GPU (an option, or a variable CUDASYNC_*): {error}"
        ) from error


def write_native_libraries(folder: Path) -> list[str]:
    """Write the libraries for linking native programs into a folder; return the file names.

    Raises CudasyncError if this machine, its Python or its C compiler is not suitable.
    """
    written: list[str] = _software_gpu().write_native_libraries(folder)
    return written


def _software_gpu() -> ModuleType:
    # The only import of the cellar from a higher floor (DESIGN, the floors).
    return importlib.import_module("cudasync.softgpu")


def _after_fork_in_child() -> None:
    global _forked
    _forked = _choice is not None


os.register_at_fork(after_in_child=_after_fork_in_child)
