"""numba-cuda's own test-suite, which ships in its wheel, on the software GPU.

    python bench/suites/numba_suite.py                         every module, in a process each
    python bench/suites/numba_suite.py test_atomics nrt        modules with such a word in the name
    python bench/suites/numba_suite.py --json FILE             keep the outcome of each test
    python bench/suites/numba_suite.py --check mem,race,init,sync  run the tests under checks
    python bench/suites/numba_suite.py --part 3/12             the third of twelve parts
    python bench/suites/numba_suite.py --table FILE            the table of a kept FILE; no run

A process that dies or misses its deadline costs its current test; another process goes on with the
rest of the module. Exit status: 0 if every test passed or was skipped, else 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import signal
from importlib.util import find_spec

from bench.checkout import ROOT
from bench.harness import machine
from bench.suites import runner

CHILD = ROOT / "bench" / "suites" / "numba_module.py"
TESTS = "numba/cuda/tests"
PREFIX = "numba.cuda.tests."
# Benchmarks need a pytest plugin, and the simulator is another device.
LEFT_OUT = {"benchmarks", "cudasim"}


def main() -> int:
    options = runner.parser(__doc__ or "").parse_args()
    if options.table:
        print(runner.table(runner.kept_tests(options.table), PREFIX))
        return 0
    tests = runner.go_through(
        modules(),
        options,
        known=facts(),
        run=lambda module: runner.run_module(
            CHILD, module, options.deadline, runner.checked(options)
        ),
    )
    print(runner.table(tests, PREFIX))
    return runner.status_of(tests)


def facts() -> dict[str, object]:
    versions = {name: machine.installed(name) for name in ("numba", "numba-cuda", "cuda-core")}
    return {"program": "numba_suite", **machine.facts(), **versions}


def modules() -> list[str]:
    """The suite's modules, by their import names."""
    spec = find_spec("numba_cuda")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("numba-cuda is not installed")
    top = Path(spec.submodule_search_locations[0])
    files = [path.relative_to(top) for path in sorted((top / TESTS).rglob("test_*.py"))]
    return [
        ".".join(file.with_suffix("").parts)
        for file in files
        if not LEFT_OUT.intersection(file.parts)
    ]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # The results so far are in the file.
        sys.exit(128 + signal.SIGINT)
