"""NVIDIA's own tests and examples of cuda.bindings and cuda.core, on the software GPU.

    python bench/suites/nvidia_suite.py CHECKOUT               every file, in a process each
    python bench/suites/nvidia_suite.py CHECKOUT test_event ipc  files with such a word in the name
    python bench/suites/nvidia_suite.py CHECKOUT --json FILE   keep the outcome of each test
    python bench/suites/nvidia_suite.py CHECKOUT --part 3/12   the third of twelve parts
    python bench/suites/nvidia_suite.py --table FILE           the table of a kept FILE; no run

CHECKOUT is a checkout of github.com/NVIDIA/cuda-python of the installed version. A process that
dies or misses its deadline costs its current test; another process goes on with the rest of the
file. Exit status: 0 if every test passed or was skipped, else 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import importlib.metadata
import re
import signal
import subprocess
import tempfile

from bench.checkout import ROOT
from bench.harness import machine
from bench.suites import runner
from bench.suites.runner import Outcome

CHILD = ROOT / "bench" / "suites" / "nvidia_module.py"
PACKAGES = ("cuda_bindings", "cuda_core")
# Tests of the packages' builds, of libraries other than CUDA's driver, and tests that run the
# examples, which are run here one by one.
LEFT_OUT = {
    *("test_cufile.py", "test_legacy_cufile.py", "test_cudla_bindings.py", "test_build_hooks.py"),
    *("test_examples.py", "test_basic_examples.py", "test_cython.py"),
}
# With this exit status an example reports that the machine does not suit it.
_NOT_FOR_THIS = 100


def main() -> int:
    parser = runner.parser(__doc__ or "")
    parser.add_argument(
        "--devices", type=int, default=3, metavar="N", help="devices of the software GPU (3)"
    )
    options = parser.parse_args()
    if options.table:
        print(table(runner.kept_tests(options.table)))
        return 0
    if not options.words or not Path(options.words[0], "cuda_core", "tests").is_dir():
        parser.error("say first where a checkout of NVIDIA/cuda-python is")
    checkout = Path(options.words.pop(0)).resolve()
    variables = {
        "NVIDIA_CHECKOUT": str(checkout),
        "CUDASYNC_SOFTGPU_DEVICES": str(options.devices),
        "CUDA_BINDINGS_SKIP_EXAMPLE": str(_NOT_FOR_THIS),
    }

    def run(file: str) -> list[Outcome]:
        if "/examples/" in file:
            return [run_example(checkout, file, options.deadline, variables)]
        return runner.run_module(CHILD, file, options.deadline, variables)

    known = {**facts(checkout), "devices": options.devices}
    tests = runner.go_through(files(checkout), options, known=known, run=run)
    print(table(tests))
    return runner.status_of(tests)


def facts(checkout: Path) -> dict[str, object]:
    asked = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(asked, capture_output=True, check=False, text=True, timeout=30)
    return {
        "program": "nvidia_suite",
        **machine.facts(),
        "cuda-core": machine.installed("cuda-core"),
        "nvidia-cuda-nvrtc": machine.installed("nvidia-cuda-nvrtc"),
        "checkout": done.stdout.strip() or None,
    }


def files(checkout: Path) -> list[str]:
    """The tests and the examples, as paths relative to the checkout."""
    found = []
    for package in PACKAGES:
        found += sorted((checkout / package / "tests").rglob("test_*.py"))
        found += sorted((checkout / package / "examples").rglob("*.py"))
    return [str(path.relative_to(checkout)) for path in found if path.name not in LEFT_OUT]


def run_example(checkout: Path, file: str, deadline_s: float, variables: dict[str, str]) -> Outcome:
    """Run one example to its end. It is skipped if it lacks a package, or says so itself."""
    missing = missing_packages((checkout / file).read_text(encoding="utf-8"))
    if missing:
        reason = f"wants {', '.join(missing)}, not installed"
        return {"test": file, "outcome": "skipped", "reason": reason}
    with tempfile.TemporaryDirectory() as folder:
        end = runner.run_process([str(checkout / file)], folder, deadline_s, variables)
    if end.status == 0:
        return {"test": file, "outcome": "passed", "reason": ""}
    outcome = "skipped" if end.status == _NOT_FOR_THIS else "failed"
    return {"test": file, "outcome": outcome, "reason": end.in_words(), "trace": end.said[-6000:]}


def missing_packages(text: str) -> list[str]:
    """The packages that a script's own metadata (PEP 723) asks for and that are not installed."""
    found = re.search(r"^# dependencies = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"[\"']([A-Za-z0-9_.-]+)", found[1]) if found else []
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def table(tests: list[Outcome]) -> str:
    """Separate counts for examples and for tests that enqueue nothing, then the reasons."""
    examples = [test for test in tests if "/examples/" in str(test["test"])]
    others = [test for test in tests if "/examples/" not in str(test["test"])]
    working = [test for test in others if test.get("enqueued") != 0]
    idle = [test for test in others if test.get("enqueued") == 0]
    lines = [
        runner.counted(others),
        runner.counted(working, "of them enqueue something, or were lost"),
        runner.counted(idle, "of them enqueue nothing"),
        runner.counted(examples, "examples"),
    ]
    return "\n".join([*lines, "", runner.table(tests)])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # The results so far are in the file.
        sys.exit(128 + signal.SIGINT)
