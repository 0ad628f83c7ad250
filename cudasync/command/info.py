"""`info`: the device in use, the reason for the choice, and the installed packages."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.array.copies.staging import KEPT_BYTES
from cudasync.command.versions import EXTRAS, missing_from, version_of
from cudasync.distributed.initialisation import available, is_launched
from cudasync.driver.blas import blas_of
from cudasync.driver.device import driver_version
from cudasync.driver.extensions.declared_accesses import can_record, is_checked
from cudasync.driver.memory.device_memory import held_by_software
from cudasync.driver.probe import chosen
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    import argparse

_CUPY = ("cupy-cuda13x", "cupy-cuda12x")
_CUPY_ON_SOFTWARE = (
    "runs, with cuBLAS, cuFFT, cuRAND and random generators over NumPy; not supported: "
    "cuSOLVER, cuSPARSE, cuSPARSELt, cuTENSOR, NCCL, cupy.cuda.cub"
)
_PACKAGES = ("cuda-python", "cuda-bindings", "numpy", "llvmlite", "pillow", "matplotlib")


def start(options: argparse.Namespace) -> int:
    """Print the report; 0 if a device can be used, 1 if none can."""
    found = _found()
    print(json.dumps(found, indent=2) if options.json else "\n".join(_as_text(found)))
    return 0 if found["devices"] else 1


def _found() -> dict[str, Any]:
    found: dict[str, Any] = {
        "cudasync": cs.__version__,
        "chosen": None,
        "why": "",
        "driver_version": None,
        "check": None,
        "held": None,
        "cupy": None,
        "devices": [],
        "communicators": _communicators(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: version_of(name) for name in _PACKAGES},
        "extras": {
            name: {"is_installed": not missing_from(name), "missing": missing_from(name)}
            for name in EXTRAS
        },
    }
    try:
        choice = chosen()
    except CudasyncError as error:
        found["why"] = str(error)
        return found
    found["chosen"], found["why"] = choice
    found["driver_version"] = "{}.{}".format(*driver_version())
    try:
        found["check"] = _check()
    except CudasyncError as error:
        found["check"] = str(error)
    found["held"] = _held()
    found["cupy"] = _cupy(found["chosen"])
    for ordinal in range(cs.device_count()):
        device = cs.Device(ordinal)
        found["devices"].append(
            {
                "ordinal": ordinal,
                "name": device.name,
                "compute_capability": list(device.compute_capability),
                "is_software": device.is_software,
                "matmul": _matmul(device),
            }
        )
    return found


def _communicators() -> dict[str, dict[str, Any]]:
    """The communicators for collectives; the one that `init()` takes here is chosen."""
    chosen_one = "mpi" if is_launched() else "local"
    return {
        name: {"is_available": can, "about": text, "is_chosen": name == chosen_one}
        for name, (can, text) in available().items()
    }


def _check() -> str:
    """The effect of CUDASYNC_CHECK in this process."""
    if not is_checked():
        return "off"
    if can_record():
        return "launches and device ops are compared with their declared accesses"
    return "finds only declarations that contradict the PTX: this driver records no accesses"


def _held() -> str:
    """The amount of unused memory that caches keep."""
    text = f"at most {KEPT_BYTES >> 20} MiB of pinned memory for copies"
    software = held_by_software()
    if software is None:
        return f"{text}; the driver's memory pools have their own limits"
    return f"{text}, {software[1] >> 20} MiB of freed memory in the software GPU"


def _cupy(chosen_one: str) -> str | None:
    """The parts of CuPy that run on this device; None if CuPy is not installed."""
    installed = next(((name, found) for name in _CUPY if (found := version_of(name))), None)
    if installed is None:
        return None
    name, version = installed
    if chosen_one != "soft":
        return f"{name} {version}"
    return f"{name} {version} {_CUPY_ON_SOFTWARE}"


def _matmul(device: cs.Device) -> str:
    """The library for products of float32 and float64 on the device, after loading the library."""
    try:
        return str(blas_of(device))
    except CudasyncError as error:
        return str(error)


def _as_text(found: dict[str, Any]) -> list[str]:
    kind = {"cuda": "CUDA", "soft": "the software GPU", None: "none"}[found["chosen"]]
    rows = [
        ("cudasync", found["cudasync"]),
        ("chosen", f"{kind}: {found['why']}"),
    ]
    for device in found["devices"]:
        major, minor = device["compute_capability"]
        about = f"{device['name']}, compute capability {major}.{minor}"
        rows.append((f"device {device['ordinal']}", about))
    if found["driver_version"]:
        rows.append(("driver", f"CUDA {found['driver_version']}"))
    if found["devices"]:
        ways = dict.fromkeys(each["matmul"] for each in found["devices"])
        rows.append(("matmul", "; ".join(ways)))
    for name, each in found["communicators"].items():
        lead = "" if each["is_available"] else "not available: "
        chosen_one = " (init() chooses it here)" if each["is_chosen"] else ""
        rows.append((f"{name} ranks", f"{lead}{each['about']}{chosen_one}"))
    if found["check"]:
        rows.append(("checked mode", found["check"]))
    if found["held"]:
        rows.append(("memory kept", found["held"]))
    if found["cupy"]:
        rows.append(("cupy", found["cupy"]))
    rows.append(("python", f"{found['python']} on {found['platform']}"))
    rows += [(name, version or "not installed") for name, version in found["packages"].items()]
    for name, extra in found["extras"].items():
        lacks = ", ".join(extra["missing"])
        hint = f'lacks {lacks}: pip install "cudasync[{name}]"'
        rows.append((f"[{name}]", "installed" if extra["is_installed"] else hint))
    return [f"{label:<14}{text}" for label, text in rows]
