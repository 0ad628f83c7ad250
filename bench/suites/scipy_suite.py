"""Functions of SciPy and scikit-learn that take array API inputs, on our arrays, beside NumPy.

    python bench/suites/scipy_suite.py                on the current device, then on the CPU
    python bench/suites/scipy_suite.py --device cpu   only on the CPU
    python bench/suites/scipy_suite.py --only stats   functions with this in the name
    python bench/suites/scipy_suite.py --json FILE    keep the outcome of each function
    python bench/suites/scipy_suite.py --table FILE   the table of a kept FILE; no run

Needs scipy and scikit-learn. A function passes if its answer equals NumPy's to a millionth. Exit
status: 0 if no function gave another answer, else 1. A function that raised an error gave none; its
error is reported with the reason.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import json
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

# This must precede the import of SciPy.
os.environ["SCIPY_ARRAY_API"] = "1"

import numpy as np

import cudasync as cs
from bench.harness import machine
from bench.suites.array_api_suite import tables
from cudasync import xp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.suites.array_api_suite import Outcome
    from bench.suites.scipy_cases import Case


def main() -> int:
    options = parse()
    if options.table:
        namespaces = json.loads(Path(options.table).read_text(encoding="utf-8"))["namespaces"]
    else:
        from bench.suites.scipy_cases import CASES

        cases = {name: case for name, case in CASES.items() if options.only in name}
        devices = options.device or ["0", "cpu"]
        namespaces = {f"device {device}": asked(cases, place(device)) for device in devices}
    if options.json and not options.table:
        report = {
            "program": "scipy_suite",
            "scipy": version("scipy"),
            "scikit_learn": version("scikit-learn"),
            **machine.facts(),
            "namespaces": namespaces,
        }
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(tables(namespaces))
    found = [each for outcomes in namespaces.values() for each in outcomes]
    return int(any(each["reason"].startswith("another answer") for each in found))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--device", action="append", help='a device: an ordinal, or "cpu" (0, then cpu)'
    )
    parser.add_argument(
        "--only", default="", metavar="WORD", help="functions with WORD in the name"
    )
    parser.add_argument("--json", metavar="FILE", help="keep the outcome of each function")
    parser.add_argument("--table", metavar="FILE", help="the table of a kept FILE; no run")
    return parser.parse_args()


def place(word: str) -> Any:
    return word if word == "cpu" else int(word)


def asked(cases: Mapping[str, Case], device: Any) -> list[Outcome]:
    """The outcome of each function on arrays of this device."""
    found = []
    for name, case in cases.items():
        reason = judged(case, device)
        outcome = "failed" if reason else "passed"
        found.append({"test": name, "outcome": outcome, "reason": reason})
    return found


def judged(case: Case, device: Any) -> str:
    """The reason why the answer differs from NumPy's, or ""."""
    function, arrays = case
    expected = np.asarray(function(*arrays))
    try:
        got = function(*(xp.asarray(each, device=device) for each in arrays))
        answer = got.numpy() if isinstance(got, cs.Array) else np.asarray(got)
    except Exception as error:
        first = str(error).partition("\n")[0]
        return f"{type(error).__name__}: {first}"[:200]
    if answer.shape != expected.shape:
        return f"another answer: of shape {answer.shape}, not {expected.shape}"
    if not np.allclose(answer, expected, rtol=1e-6, atol=1e-9, equal_nan=True):
        apart = np.max(np.abs(answer - expected))
        return f"another answer: {apart} apart"
    return ""


if __name__ == "__main__":
    sys.exit(main())
