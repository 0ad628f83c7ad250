"""numba-cuda's own test-suite, which ships in its wheel, on the software GPU.

    python bench/numba_suite.py                      every module, each in a process of its own
    python bench/numba_suite.py test_atomics nrt     only those with one of these in the name
    python bench/numba_suite.py --json FILE          and keep what came of each test
    python bench/numba_suite.py --check mem,race,init,sync    and check what they do
    python bench/numba_suite.py --part 3/12          the third of twelve parts
    python bench/numba_suite.py --table FILE         what such a file says; nothing is run

A process that dies or is not done by its deadline costs the test that it was at; the module goes
on behind it in another one. Exit status: 0 if every test passed or was skipped, else 1.
"""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import machine
import suite_runner
from checkout import ROOT

CHILD = ROOT / "bench" / "numba_module.py"
TESTS = "numba/cuda/tests"
PREFIX = "numba.cuda.tests."
# Benchmarks need a pytest plugin, and the simulator is another device.
LEFT_OUT = {"benchmarks", "cudasim"}


def main() -> int:
    options = suite_runner.parser(__doc__ or "").parse_args()
    if options.table:
        print(suite_runner.table(suite_runner.kept_tests(options.table), PREFIX))
        return 0
    tests = suite_runner.go_through(
        modules(),
        options,
        known=facts(),
        run=lambda module: suite_runner.run_module(
            CHILD, module, options.deadline, suite_runner.checked(options)
        ),
    )
    print(suite_runner.table(tests, PREFIX))
    return suite_runner.status_of(tests)


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
