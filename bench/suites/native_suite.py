"""A folder of CUDA C++ programs, compiled and run on the software GPU.

    python bench/suites/native_suite.py FOLDER                every program under the folder
    python bench/suites/native_suite.py FOLDER reduce scan    programs with such a word in the name
    python bench/suites/native_suite.py FOLDER --json FILE    keep the outcome of each program
    python bench/suites/native_suite.py FOLDER --part 3/12    the third of twelve parts
    python bench/suites/native_suite.py FOLDER --sample 100   a hundred programs that may build
    python bench/suites/native_suite.py FOLDER --builds DIR   keep what is built, and build once
    python bench/suites/native_suite.py - --table FILE        the table of a kept FILE; no run

A program is a folder with sources (`native_programs.py`). nvcc compiles it to PTX, and it is linked
with the libraries of `cudasync native`. It passes if its exit status is 0, and if it reports a
right answer and no failure, or only has a check decide on its exit status. It is skipped if it
reports no answer, does not build, lacks a file, or needs another library. Programs that the
software GPU refuses by name are counted apart. The deadline is in processor time, so other work on
the machine does not change outcomes. Exit status: 0 if every program passed or was skipped, else 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import re
import resource
import signal
import subprocess
import tempfile
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from bench.checkout import ROOT
from bench.harness import machine
from bench.suites import runner
from bench.suites.native_compiler import nvcc_command
from bench.suites.native_programs import Program, programs_of
from bench.suites.native_verdicts import judged, summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.suites.runner import Outcome

_OPTIONS = (
    *("-arch=compute_80", "-O2", "-std=c++17", "-w", "-Xcompiler=-fopenmp,-fpermissive"),
    *("--expt-relaxed-constexpr", "--extended-lambda"),
)
_BUILD_DEADLINE_S = 180
# The deadline ends a kernel that does not end, so a long one may go on.
_BUDGET = 2**61


def main() -> int:
    made = runner.parser(__doc__ or "")
    made.add_argument("--sample", type=int, metavar="N", help="run N programs, drawn with --seed")
    made.add_argument("--seed", type=int, default=23, help="the seed of --sample (23)")
    made.add_argument("--builds", metavar="DIR", help="the folder of kept builds")
    # The first word is the folder.
    options = made.parse_args()
    if options.table:
        tests = runner.kept_tests(options.table)
        print(summary(tests))
        return status_of(tests)
    if not options.words:
        made.error("give the folder of the programs")
    top = Path(options.words.pop(0)).resolve()
    nvcc = nvcc_command()
    if nvcc is None:
        sys.exit("there is no nvcc: pip install nvidia-cuda-nvcc nvidia-cuda-runtime")
    programs = {each.name: each for each in programs_of(top, options.words)}
    names = list(programs)
    if options.sample is not None:
        names = sample(names, programs, options.sample, options.seed)
    with tempfile.TemporaryDirectory(prefix="native-suite-") as scratch:
        libraries = Path(scratch, "libraries")
        write_libraries(libraries)
        builds = Path(options.builds or scratch).resolve()
        builds.mkdir(parents=True, exist_ok=True)
        tests = runner.go_through(
            names,
            options,
            known={"program": "native_suite", **machine.facts(), "nvcc": version_of(nvcc)},
            run=lambda name: [
                outcome_of(programs[name], nvcc, libraries, builds, options.deadline)
            ],
        )
    print(summary(tests))
    return status_of(tests)


def sample(
    names: Sequence[str], programs: Mapping[str, Program], count: int, seed: int
) -> list[str]:
    """So many of the programs that are not skipped by what their files say, in a drawn order.

    A program's place depends on its name and the seed alone, so a sample changes little with the
    folder.
    """
    fit = [name for name in names if not programs[name].skipped]
    return sorted(fit, key=lambda name: Random(f"{seed} {name}").random())[:count]


def write_libraries(folder: Path) -> None:
    """Write the libraries that programs are linked with, by the package's command."""
    command = [sys.executable, "-m", "cudasync", "native", "--libs", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def version_of(nvcc: Sequence[str]) -> str:
    said = subprocess.run([nvcc[0], "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", said)
    return found[1] if found else ""


def outcome_of(
    program: Program, nvcc: Sequence[str], libraries: Path, builds: Path, deadline_s: float
) -> Outcome:
    """Build a program unless that is done, run it, and judge its output."""
    made = partial(_outcome, program)
    if program.skipped:
        return made("skipped", program.skipped, 0)
    binary = builds / program.name.replace("/", "__")
    if not binary.exists():
        why = _build(program, nvcc, libraries, binary)
        if why:
            return made("skipped", f"does not build: {why}", 0)
    before = _processor_seconds()
    status, said = runner.limited(
        [str(binary), *program.arguments],
        program.folder,
        deadline_s,
        {"LD_LIBRARY_PATH": str(libraries), "CUDASYNC_SOFTGPU_BUDGET": str(_BUDGET)},
    )
    verdict = judged(status, said, judges_by_status=program.judges_by_status)
    return made(*verdict, _processor_seconds() - before)


def _build(program: Program, nvcc: Sequence[str], libraries: Path, binary: Path) -> str:
    """Why a program does not build; "" if it does."""
    options = [*_OPTIONS, *program.flags]
    for source, module in program.modules:
        kind = Path(module).suffix.replace(".", "-")
        command = [*nvcc, *options, kind, str(source), "-o", str(program.folder / module)]
        runner.end_of(command, program.folder, _BUILD_DEADLINE_S, {})
    build = [
        *(nvcc[0], f"-L{libraries}", *nvcc[1:]),
        *options,
        *(str(path) for path in program.sources),
        *("-lcuda", "-lgomp", "-o", str(binary)),
    ]
    status, said = runner.end_of(build, program.folder, _BUILD_DEADLINE_S, {})
    return "" if status == 0 else _first_error(said) or "not done by the deadline"


def _processor_seconds() -> float:
    """The processor time of this process's children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def status_of(tests: list[Outcome]) -> int:
    return runner.status_of(tests)


def _outcome(program: Program, outcome: str, reason: str, seconds: float) -> Outcome:
    reason = reason.replace(str(program.folder), ".")[:300]
    known = {"test": program.name, "outcome": outcome, "reason": reason}
    return {**known, "arguments": list(program.arguments), "seconds": round(seconds, 1)}


def _first_error(said: str) -> str:
    lines = said.splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # The results so far are in the file.
        sys.exit(128 + signal.SIGINT)
