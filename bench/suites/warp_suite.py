"""Runs the tests in NVIDIA Warp's wheel, with their kernels on the software GPU.

    python bench/suites/warp_suite.py test_codegen tile.       modules with a word in their name
    python bench/suites/warp_suite.py --check mem,race,init,sync --json FILE   under checks, kept
    python bench/suites/warp_suite.py --table FILE             print a kept file; run nothing

Each module runs in a process of its own. `warp_module.py` brings Warp's kernels to the software
GPU. Under checks, a module's arrays are page-locked memory. Warp's C++ code allocates meshes,
trees, grids and volumes itself. The software GPU does not know this memory, so modules with such
objects run without `mem`. Exit status: 0 if every test passed or was skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import re
import signal
import tempfile
from importlib.util import find_spec

from bench.checkout import ROOT
from bench.harness import machine
from bench.suites import runner

CHILD = ROOT / "bench" / "suites" / "warp_recorded.py"
PREFIX = "warp.tests."
# Objects that Warp's C++ code allocates.
_NATIVE = re.compile(
    r"wp\.(?:Mesh|Bvh|HashGrid|Volume|MarchingCubes|Texture\w*|fabricarray)[.(]|\.volume_by_\w+"
    # A lookup in a geometry builds a tree.
    r"|fem\.lookup\(|build_bvh"
)
# These tests run no kernel here: they need other libraries, or Warp's own CUDA device.
_LEFT_OUT = {"interop", "cuda", "aux_files"}


def main() -> int:
    options = runner.parser(__doc__ or "").parse_args()
    if options.table:
        print(runner.table(runner.kept_tests(options.table), PREFIX))
        return 0
    spec = find_spec("warp")
    if spec is None or spec.origin is None:
        sys.exit("Warp is not installed: pip install warp-lang")
    top = Path(spec.origin).parent / "tests"
    with tempfile.TemporaryDirectory(prefix="warp-suite-") as cache:
        tests = runner.go_through(
            modules(top),
            options,
            known={
                "program": "warp_suite",
                **machine.facts(),
                "warp-lang": machine.installed("warp-lang"),
            },
            run=lambda module: runner.run_module(
                CHILD,
                module,
                options.deadline,
                {"WARP_CACHE_PATH": cache, "CUDASYNC_CHECKS": kinds(options.check, module, top)},
                through=(),
            ),
        )
    print(runner.table(tests, PREFIX))
    return runner.status_of(tests)


def modules(top: Path) -> list[str]:
    """The modules of tests below `top`, by their import names."""
    files = [path.relative_to(top) for path in sorted(top.rglob("test_*.py"))]
    return [
        PREFIX + ".".join(file.with_suffix("").parts)
        for file in files
        if not _LEFT_OUT.intersection(file.parts)
    ]


def kinds(asked: str | None, module: str, top: Path) -> str:
    """The kinds of checks for a module: without `mem` if C++ code allocates its objects."""
    file = top / (module.removeprefix(PREFIX).replace(".", "/") + ".py")
    named = (asked or "").split(",")
    if _NATIVE.search(file.read_text(encoding="utf-8")):
        named = [kind for kind in named if kind != "mem"]
    return ",".join(named)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # The results so far are in the file.
        sys.exit(128 + signal.SIGINT)
