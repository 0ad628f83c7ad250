"""Programs as users write them, unmodified, under `python -m cudasync run`.

Each program checks its own results and prints one line that begins with its name. The programs also
run on a real GPU. Their packages are optional. One test names the programs with missing packages,
so that nobody takes them for passed.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.repository.nvidia_libraries import DEADLINE_S, has_library
from helpers.repository.subprocesses import start

HERE = Path(__file__).parent
PROGRAMS = sorted(HERE.glob("*/*.py"))
# One program of each kind always runs; the others run with --run-slow, as in .ci/run.
ALWAYS = {
    "bindings/vector_add.py",
    "core/vector_add.py",
    "cupy/arrays.py",
    "numba_cuda/kernels.py",
}


def has_package(name: str) -> bool:
    return find_spec(name) is not None


def missing(program: Path) -> list[str]:
    """The packages that the program imports and that are not installed."""
    text = program.read_text()
    needs = {
        "NVRTC": ("nvrtc" in text or "Program(" in text or "cupy" in text, has_library, "nvrtc"),
        "NVVM": ("numba" in text, has_library, "nvvm"),
        "CuPy": ("cupy" in text, has_package, "cupy"),
        "cuda-core": ("cuda.core" in text, has_package, "cuda.core"),
        "numba-cuda": ("numba" in text, has_package, "numba_cuda"),
    }
    return [what for what, (needed, has, name) in needs.items() if needed and not has(name)]


def name_of(program: Path) -> str:
    return program.relative_to(HERE).as_posix()


MISSING = {program: missing(program) for program in PROGRAMS}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(p, id=name_of(p), marks=[] if name_of(p) in ALWAYS else pytest.mark.slow)
        for p in PROGRAMS
        if not MISSING[p]
    ],
)
def test_a_program_runs_unmodified_and_says_one_line(program):
    command = [sys.executable, "-W", "ignore", "-m", "cudasync", "run", str(program)]
    code, printed = start(command, DEADLINE_S)
    assert code == 0, printed
    assert printed.splitlines()[-1].startswith(f"{program.stem}: "), printed


def test_programs_whose_packages_are_not_here_are_named():
    absent = sorted({what for needs in MISSING.values() for what in needs})
    if absent:
        names = ", ".join(name_of(program) for program in PROGRAMS if MISSING[program])
        pytest.skip(f"not run, for want of {', '.join(absent)}: {names}")
    assert PROGRAMS
