"""A folder of CUDA C++ programs, compiled and run on the software GPU.

    python bench/native_suite.py FOLDER                  every program that is found under it
    python bench/native_suite.py FOLDER reduce scan      only those with one of these in the name
    python bench/native_suite.py FOLDER --json FILE      and keep what came of each program
    python bench/native_suite.py FOLDER --part 3/12      the third of twelve parts
    python bench/native_suite.py - --table FILE          what such a file says; nothing is run

A program is a folder with sources (`native_programs.py`). nvcc compiles it to PTX, with the
libraries of `cudasync native`. It passes if it ends with status 0, says that its answer is right,
and says nothing of a failure. One that says nothing of its answer is skipped, and so is one that
does not build, or is made for another library. What the software GPU refuses by name is counted
apart. Exit status: 0 if every program passed or was skipped, else 1.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import machine
import suite_runner
from checkout import ROOT
from native_compiler import nvcc_command
from native_programs import Program, programs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from suite_runner import Outcome

_PASS = re.compile(
    r"\bpass(ed|es)?\b|\bsuccess(ful|fully)?\b|\bsucceeded\b|\bcorrect\b|\bverified\b|\bok\b|"
    r"\bmatch(es)?\b|\bidentical\b",
    re.IGNORECASE,
)
_FAILURE = re.compile(
    r"\bfail(ed|s|ures?)?\b|\bmismatch(es)?\b|\bincorrect\b|\bwrong\b|not match|"
    r"\berrors? (at|in|code)\b|\berror: (?![-+.\d])",
    re.IGNORECASE,
)
# Texts that look like a failure, and report that there is none.
_NO_FAILURE = re.compile(
    r"\b(0|no|zero|without)\s+(failed|failures?|mismatch\w*|errors?)\b|"
    r"(failed|failures?|mismatch\w*|errors?)\w*\s*[:=]\s*0(\.0*)?\b|"
    # Programs that demonstrate an assertion.
    r"thread: \[[\d,]+\] Assertion .* failed|failed as expected|generate assertion failures",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"cudasync (?:software GPU|native): (.*(?:supported|NOT_SUPPORTED|software GPU|CUDA 13).*)"
)
# The exit status of cuda-samples if the device lacks their feature.
_WAIVED = 2
_OPTIONS = ("-arch=compute_80", "-std=c++17", "-w", "-Xcompiler=-fopenmp,-fpermissive")
_BUILD_DEADLINE_S = 180


def main() -> int:
    made = suite_runner.parser(__doc__ or "")
    # The first word is the folder.
    options = made.parse_args()
    if options.table:
        tests = suite_runner.kept_tests(options.table)
        print(summary(tests))
        return status_of(tests)
    if not options.words:
        made.error("give the folder of the programs")
    top = Path(options.words.pop(0)).resolve()
    nvcc = nvcc_command()
    if nvcc is None:
        sys.exit("there is no nvcc: pip install nvidia-cuda-nvcc nvidia-cuda-runtime")
    programs = {each.name: each for each in programs_of(top)}
    with tempfile.TemporaryDirectory(prefix="native-suite-") as scratch:
        libraries = Path(scratch, "libraries")
        write_libraries(libraries)
        tests = suite_runner.go_through(
            list(programs),
            options,
            known={"program": "native_suite", **machine.facts(), "nvcc": version_of(nvcc)},
            run=lambda name: [
                outcome_of(programs[name], nvcc, libraries, Path(scratch), options.deadline)
            ],
        )
    print(summary(tests))
    return status_of(tests)


def write_libraries(folder: Path) -> None:
    """Write the libraries that programs are linked with, by the package's command."""
    command = [sys.executable, "-m", "cudasync", "native", "--libs", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def version_of(nvcc: Sequence[str]) -> str:
    said = subprocess.run([nvcc[0], "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", said)
    return found[1] if found else ""


def outcome_of(
    program: Program, nvcc: Sequence[str], libraries: Path, scratch: Path, deadline_s: float
) -> Outcome:
    """Build a program, run it, and judge its output."""
    began = monotonic()
    made = partial(_outcome, program, began)
    if program.skipped:
        return made("skipped", program.skipped)
    binary = scratch / "program"
    binary.unlink(missing_ok=True)
    options = [*_OPTIONS, *program.flags]
    for source, module in program.modules:
        command = [*nvcc, *options, "-fatbin", str(source), "-o", str(program.folder / module)]
        suite_runner.end_of(command, program.folder, _BUILD_DEADLINE_S, {})
    build = [
        *nvcc,
        *options,
        *(str(path) for path in program.sources),
        *(f"-L{libraries}", "-lcuda", "-lgomp", "-o", str(binary)),
    ]
    status, said = suite_runner.end_of(build, program.folder, _BUILD_DEADLINE_S, {})
    if status != 0:
        return made("skipped", f"does not build: {_first_error(said)}")
    own = {"LD_LIBRARY_PATH": str(libraries)}
    status, said = suite_runner.end_of(
        [str(binary), *program.arguments], program.folder, deadline_s, own
    )
    return made(*judged(status, said))


def judged(status: int | None, said: str) -> tuple[str, str]:
    """The outcome and its reason for a program with this exit status and output."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    refused = _REFUSED.search(said)
    if refused:
        return "refused", refused[1]
    if status is None:
        return "lost", f"not done by its deadline: {last}"
    if status < 0:
        return "lost", f"ended by {signal.Signals(-status).name}: {last}"
    if status == _WAIVED and re.search("waiv|not support|require", said, re.IGNORECASE):
        return "skipped", f"waives itself: {last}"
    claims = _NO_FAILURE.sub(" passed ", said)
    failure = _FAILURE.search(claims)
    if status or failure:
        told = next((line for line in lines if failure and failure[0] in line), last)
        return "failed", f"exit status {status}: {told}"
    return ("passed", "") if _PASS.search(claims) else ("skipped", "says nothing of its answer")


def summary(tests: list[Outcome]) -> str:
    """Counts, and the reasons of programs that did not pass."""
    return suite_runner.table(tests)


def status_of(tests: list[Outcome]) -> int:
    return suite_runner.status_of(tests)


def _outcome(program: Program, began: float, outcome: str, reason: str) -> Outcome:
    reason = reason.replace(str(program.folder), ".")[:300]
    seconds = round(monotonic() - began, 1)
    return {"test": program.name, "outcome": outcome, "reason": reason, "seconds": seconds}


def _first_error(said: str) -> str:
    lines = said.splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # The results so far are in the file.
        sys.exit(128 + signal.SIGINT)
