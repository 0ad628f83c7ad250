"""NVIDIA's assembler, asked about files and texts: the outside word on what is PTX.

It comes with the wheel nvidia-cuda-nvcc, which the extra `dev` brings; one on the PATH will do.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12")
# A file whose purpose is to be refused says so in its header, with the reason.
INVALID = re.compile(r"^// INVALID \S", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+sm_(\w+)", re.MULTILINE)


@cache
def program() -> str:
    """The path of ptxas; AssertionError with what to install if there is none."""
    for wheel in WHEELS:
        try:
            files = metadata.files(wheel) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "ptxas":
                return str(file.locate())
    found = shutil.which("ptxas")
    assert found, "no ptxas here: pip install 'cudasync[dev]', or nvidia-cuda-nvcc alone"
    return found


def goes_on_to(path: Path, target: int) -> bool:
    """Whether what a file is for is an architecture that `target` includes: sm_90a is itself."""
    named = _TARGET.search(path.read_text())
    assert named, f"{path} names no target"
    return named[1].isdigit() and int(named[1]) <= target


def complaint(path: Path, target: str = "", *, parse_only: bool = False) -> str:
    """What ptxas has against a file, for its own target or another; "" if it takes it."""
    if not target:
        named = _TARGET.search(path.read_text())
        assert named, f"{path} names no target"
        target = named[1]
    # For a virtual architecture nothing is generated, which halves the time.
    kind = "compute" if parse_only else "sm"
    command = [program(), f"-arch={kind}_{target}", "-O0", "-o", "/dev/null", str(path)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
    )
    return (done.stdout.strip() or f"exit code {done.returncode}") if done.returncode else ""


def surprises(paths: Iterable[Path], target: str = "", *, parse_only: bool = False) -> list[str]:
    """One paragraph for each file that is refused, and for each that says INVALID and is not."""

    def surprise(path: Path) -> str:
        said = complaint(path, target, parse_only=parse_only)
        if INVALID.search(path.read_text()):
            return "" if said else f"{path}: says INVALID, and ptxas takes it"
        return said and f"{path}:\n{said}"

    with ThreadPoolExecutor(2) as pool:
        return [found for found in pool.map(surprise, paths) if found]
