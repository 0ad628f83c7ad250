"""The device that a process finds, asked in a process of its own, and the identity of the source.

The process that leads a run never calls the driver: its context would take memory from the tasks,
and a driver that hangs would hang the run.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.checkout import ROOT
from bench.hardware.running import available_gib, cores
from bench.harness import machine

if TYPE_CHECKING:
    from bench.hardware.running import Setting

ASK_S = 60
# A process needs about as much of the GPU's memory, and of the host's.
GPU_GIB, HOST_GIB = 16, 3
MOST_PROCESSES = 12

_QUESTION = """
import json
import cudasync as cs
from cuda.bindings import driver
device = cs.Device(0)
device.use()
free, total = (int(each) for each in driver.cuMemGetInfo()[1:])
version = int(driver.cuDriverGetVersion()[1])
print(json.dumps({
    "name": device.name,
    "compute_capability": list(device.compute_capability),
    "is_software": device.is_software,
    "devices": cs.device_count(),
    "free_gib": round(free / 2**30, 1),
    "memory_gib": round(total / 2**30, 1),
    "driver": f"{version // 1000}.{version % 1000 // 10}",
}))
"""
PACKAGES = ("torch", "cupy-cuda13x", "cupy-cuda12x", "cupy", "cuda-core", "numba-cuda", "nccl4py")


class NoDevice(Exception):
    """There is no usable device; the text says why."""


def ask(setting: Setting) -> dict[str, Any]:
    """What a task of this setting finds. Raises NoDevice."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _QUESTION],
            cwd=ROOT,
            env=setting.environment(),
            capture_output=True,
            text=True,
            timeout=ASK_S * setting.patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoDevice(f"the driver said nothing for {ASK_S} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise NoDevice(lines[-1] if lines else f"a process ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def processes(found: dict[str, Any]) -> int:
    """How many tasks of tests the memory and the processors allow at a time."""
    by_gpu = cores() if found["is_software"] else int(found["free_gib"] // GPU_GIB)
    by_host = int(available_gib() // HOST_GIB)
    return max(1, min(by_gpu, by_host, cores() - 1, MOST_PROCESSES))


def words(found: dict[str, Any]) -> str:
    """The device in a line."""
    capability = ".".join(map(str, found["compute_capability"]))
    return (
        f"{found['name']}, compute capability {capability}, {found['memory_gib']:.0f} GiB, "
        f"driver of CUDA {found['driver']}"
    )


def facts() -> dict[str, Any]:
    """The source, the machine and the packages of a run."""
    versions = {name: machine.installed(name) for name in PACKAGES}
    return {
        **machine.facts(),
        "source": source(),
        "versions": {name: version for name, version in versions.items() if version},
    }


def source() -> str:
    """A word for all files that a run tests: equal where the files are, also outside of git."""
    found = hashlib.sha256()
    for folder in ("cudasync", "ptx", "tests", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and is_tested(path, name):
                found.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:12]


def is_tested(path: Path, name: str) -> bool:
    """False for prose, for results, and for what programs leave behind."""
    is_kept = name.startswith("bench/results/") or path.suffix in (".md", ".pyc")
    return not (is_kept or any(part.startswith(("__pycache__", ".")) for part in path.parts[-4:]))
