"""CuPy's own tests, on the software GPU.

    python bench/suites/cupy_suite.py CHECKOUT                every file, in a process each
    python bench/suites/cupy_suite.py CHECKOUT sorting math   files with such a word in the name
    python bench/suites/cupy_suite.py CHECKOUT --every 10     every tenth test of a file
    python bench/suites/cupy_suite.py CHECKOUT --at-most 20   20 tests of a file, drawn with a seed
    python bench/suites/cupy_suite.py CHECKOUT --json FILE    keep the outcome of each test
    python bench/suites/cupy_suite.py CHECKOUT --part 3/12    the third of twelve parts
    python bench/suites/cupy_suite.py --table FILE            the table of a kept FILE; no run

CHECKOUT is a checkout of github.com/cupy/cupy of the installed CuPy's version. A process that dies
or misses its deadline costs its current test; another process goes on with the rest of the file.
Tests that need a library which is refused by name are counted apart. Exit status: 0 if every other
test passed or was skipped, else 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import re
import signal
import subprocess

from bench.checkout import ROOT
from bench.harness import machine
from bench.suites import runner
from bench.suites.runner import Outcome

CHILD = ROOT / "bench" / "suites" / "cupy_module.py"
# Tests of CuPy's build, types and imports, and of refused libraries.
_LEFT_OUT = re.compile(
    "install_tests|typing_tests|import_tests|example_tests|cusolver|cusparse|cutensor|nccl|"
    "cudnn|jitify|distributed_tests"
)
# Messages of tests that reached a refused or missing library or compiler.
_REFUSED = re.compile(
    "not supported by the software GPU|CUFFT_NOT_SUPPORTED|CUBLAS_STATUS_NOT_SUPPORTED|nvcc|"
    "jitify|cusolver|cusparse|cutensor",
    re.IGNORECASE,
)
# A refusal within a traceback.
_REFUSAL = re.compile(
    r"\w*Error: .* not supported by the software GPU|\w+Error: CU\w+_NOT_SUPPORTED"
)
# Tests of calls of CUB itself, of transforms on several GPUs, and of nvcc's code.
_REFUSED_TESTS = re.compile(r"TestCub|TestMultiGpu|\[NVCC")


def main() -> int:
    parser = runner.parser(__doc__ or "")
    parser.add_argument(
        "--devices", type=int, default=2, metavar="N", help="devices of the software GPU (2)"
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="every Nth test of a file (1)"
    )
    parser.add_argument(
        "--at-most", type=int, default=0, metavar="N", help="draw N tests of each file (all)"
    )
    options = parser.parse_args()
    if options.table:
        print(table(runner.kept_tests(options.table)))
        return 0
    if not options.words or not Path(options.words[0], "tests", "cupy_tests").is_dir():
        parser.error("say first where a checkout of cupy/cupy is")
    checkout = Path(options.words.pop(0)).resolve()
    variables = {
        "CUPY_CHECKOUT": str(checkout),
        "CUPY_EVERY": str(options.every),
        "CUPY_AT_MOST": str(options.at_most),
        "CUDASYNC_SOFTGPU_DEVICES": str(options.devices),
    }

    def run(file: str) -> list[Outcome]:
        outcomes = runner.run_module(CHILD, file, options.deadline, variables)
        return [with_refusal(each) for each in outcomes]

    known = {
        **facts(checkout),
        "devices": options.devices,
        "every": options.every,
        "at_most": options.at_most,
    }
    tests = runner.go_through(files(checkout), options, known=known, run=run)
    print(table(tests))
    return runner.status_of([test for test in tests if not is_refused(test)])


def facts(checkout: Path) -> dict[str, object]:
    asked = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(asked, capture_output=True, check=False, text=True, timeout=30)
    return {
        "program": "cupy_suite",
        **machine.facts(),
        "cupy": machine.installed("cupy-cuda13x") or machine.installed("cupy-cuda12x"),
        "nvidia-cuda-nvrtc": machine.installed("nvidia-cuda-nvrtc"),
        "checkout": done.stdout.strip() or None,
    }


def files(checkout: Path) -> list[str]:
    """The files of tests, as paths relative to the checkout."""
    found = sorted((checkout / "tests").rglob("test_*.py"))
    names = [str(path.relative_to(checkout)) for path in found]
    return [name for name in names if not _LEFT_OUT.search(name)]


def with_refusal(test: Outcome) -> Outcome:
    """The outcome, with a refusal as its reason if the traceback shows one above the error.

    CuPy's own comparisons report only that CuPy failed and NumPy did not.
    """
    found = _REFUSAL.search(str(test.get("trace", "")))
    if test["outcome"] != "failed" or found is None or is_refused(test):
        return test
    return {**test, "reason": f"{found[0]} ({test['reason']})"}


def is_refused(test: Outcome) -> bool:
    """True for a failure that names a refused feature, or whose test is only about one."""
    if test["outcome"] != "failed":
        return False
    in_name = _REFUSED_TESTS.search(str(test["test"]))
    return (in_name or _REFUSED.search(str(test["reason"]))) is not None


def table(tests: list[Outcome]) -> str:
    """Counts with and without refused features, then the reasons."""
    refused = [test for test in tests if is_refused(test)]
    rest = [test for test in tests if not is_refused(test)]
    lines = [
        runner.counted(rest),
        f"{len(refused)} tests came to a library that is refused by name",
    ]
    return "\n".join([*lines, "", runner.table(rest, "tests/")])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # The results so far are in the file.
        sys.exit(128 + signal.SIGINT)
