"""Native programs for tests: built by nvcc, if it is installed, and run on the software GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from helpers.repository.checkout import ROOT

DEADLINE_S = 300
# Variables of the tests themselves, which programs do not get.
_OF_TESTS = ("PYTHONPATH", "CUDASYNC_SOFTGPU_DEVICES")
PROGRAMS = ROOT / "tests" / "softgpu" / "native" / "programs"


@cache
def nvcc() -> list[str] | None:
    """The nvcc command that the suite of native programs finds; None without nvcc."""
    program = "import json, bench.suites.native_compiler as c; print(json.dumps(c.nvcc_command()))"
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    import json

    found: list[str] | None = json.loads(said)
    return found if found and shutil.which("cc") and shutil.which("g++") else None


def build(libraries: Path, source: Path, target: Path, *options: str) -> None:
    """Compile and link a program."""
    command = nvcc()
    assert command is not None
    # Ours come first: the folder of NVIDIA's wheels has a static runtime, too.
    subprocess.run(
        [command[0], f"-L{libraries}", *command[1:], *options, str(source), "-o", str(target)],
        check=True,
        timeout=DEADLINE_S,
    )


def run(
    libraries: Path, program: Path, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with the libraries, and without the tests' own variables."""
    clean = {name: value for name, value in os.environ.items() if name not in _OF_TESTS}
    return subprocess.run(
        [str(program), *words],
        env={**clean, "LD_LIBRARY_PATH": str(libraries), **variables},
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
