"""NVIDIA's assembler, as an independent judge of what is PTX.

It comes with the wheel nvidia-cuda-nvcc, which the extra `dev` installs. A ptxas on the PATH also
works.
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
# A file that ptxas must refuse says so in its header, with the reason.
INVALID = re.compile(r"^// INVALID \S", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+sm_(\w+)", re.MULTILINE)


@cache
def program() -> str:
    """The path of ptxas. Without one, an AssertionError says what to install."""
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
    """Whether `target` includes the file's architecture. sm_90a is included in no other one."""
    named = _TARGET.search(path.read_text())
    assert named, f"{path} names no target"
    return named[1].isdigit() and int(named[1]) <= target


def complaint(path: Path, target: str = "", *, parse_only: bool = False) -> str:
    """ptxas's errors in a file, for the file's target or another; "" if it accepts the file."""
    if not target:
        named = _TARGET.search(path.read_text())
        assert named, f"{path} names no target"
        target = named[1]
    # For a virtual architecture ptxas generates no code, which halves the time.
    kind = "compute" if parse_only else "sm"
    command = [program(), f"-arch={kind}_{target}", "-O0", "-o", "/dev/null", str(path)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
    )
    return (done.stdout.strip() or f"exit code {done.returncode}") if done.returncode else ""


def surprises(paths: Iterable[Path], target: str = "", *, parse_only: bool = False) -> list[str]:
    """A paragraph for each refused file, and for each accepted file that says INVALID."""

    def surprise(path: Path) -> str:
        said = complaint(path, target, parse_only=parse_only)
        if INVALID.search(path.read_text()):
            return "" if said else f"{path}: says INVALID, and ptxas takes it"
        return said and f"{path}:\n{said}"

    with ThreadPoolExecutor(2) as pool:
        return [found for found in pool.map(surprise, paths) if found]
