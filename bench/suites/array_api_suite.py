"""The array API standard's own tests (data-apis/array-api-tests) on cudasync.xp, beside NumPy.

    CHECKOUT=/path/to/array-api-tests python bench/suites/array_api_suite.py
    python bench/suites/array_api_suite.py --checkout DIR --namespace xp_on_cpu  arrays on the CPU
    python bench/suites/array_api_suite.py --only test_sorting --examples 20
    python bench/suites/array_api_suite.py --json FILE         keep the outcome of each test
    python bench/suites/array_api_suite.py --table FILE        the table of a kept FILE; no run

The checkout, with its submodule, is copied, and the copy no longer requires complex dtypes. Each
file of tests runs in a process of its own. NumPy goes through the same copy, without its complex
dtypes. Exit status: 0 if at least as many tests pass as with NumPy, else 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import json
import os
import re
import signal
import subprocess
import tempfile
from collections import Counter, defaultdict
from time import monotonic
from xml.etree import ElementTree

from bench.checkout import ROOT
from bench.harness import machine
from bench.suites import array_api_copy

VERSION = "2024.12"
PEER = "numpy_without_complex"
LEFT_OUT = "complex64,complex128"

# The name, the outcome and the reason of one test.
Outcome = dict[str, str]


def main() -> int:
    options = parse()
    if options.table:
        report = json.loads(Path(options.table).read_text(encoding="utf-8"))
        print(tables(report["namespaces"]))
        return verdict(report["namespaces"])
    checkout = options.checkout or os.environ.get("CHECKOUT")
    if not checkout:
        sys.exit("say where the checkout of data-apis/array-api-tests is: --checkout, or CHECKOUT")
    # SIGTERM also ends the running child process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    namespaces: dict[str, list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            copy = array_api_copy.make(Path(checkout).resolve(), Path(folder))
        except array_api_copy.Unknown as error:
            sys.exit(str(error))
        files = sorted(path.name for path in (copy / "array_api_tests").glob("test_*.py"))
        files = [each for each in files if options.only in each]
        for namespace in options.namespace or ["cudasync.xp", PEER]:
            found = namespaces[namespace] = []
            for number, file in enumerate(files, 1):
                began = monotonic()
                outcomes = run(copy, file, namespace, options)
                found += outcomes
                counts = Counter(outcome["outcome"] for outcome in outcomes)
                words = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
                took = monotonic() - began
                print(f"[{namespace} {number}/{len(files)}] {file}: {words} ({took:.0f} s)")
                sys.stdout.flush()
    if options.json:
        report = {"program": "array_api_suite", **machine.facts(), "namespaces": namespaces}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(tables(namespaces))
    return verdict(namespaces)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--checkout", metavar="DIR", help="the checkout of array-api-tests; else CHECKOUT"
    )
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="MODULE",
        help=f"a namespace to test (cudasync.xp, then {PEER})",
    )
    parser.add_argument("--only", default="", metavar="WORD", help="files with WORD in the name")
    parser.add_argument(
        "--examples",
        type=int,
        default=100,
        metavar="N",
        help="examples of Hypothesis for a test (100)",
    )
    parser.add_argument(
        "--deadline",
        type=int,
        default=1800,
        metavar="S",
        help="the deadline of a file in seconds (1800)",
    )
    parser.add_argument("--json", metavar="FILE", help="keep the outcome of each test")
    parser.add_argument("--table", metavar="FILE", help="the table of a kept FILE; no run")
    return parser.parse_args()


def run(copy: Path, file: str, namespace: str, options: argparse.Namespace) -> list[Outcome]:
    """The outcomes of the tests in one file. A file that misses its deadline is one lost test."""
    report = copy / "report.xml"
    report.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"),
        *(f"array_api_tests/{file}", "--disable-deadline", f"--max-examples={options.examples}"),
        *("--hypothesis-derandomize", f"--junit-xml={report}"),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "bench" / "suites")]),
        "ARRAY_API_TESTS_MODULE": namespace,
        "ARRAY_API_TESTS_VERSION": VERSION,
        "ARRAY_API_TESTS_SKIP_DTYPES": LEFT_OUT,
    }
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said = process.communicate(timeout=options.deadline)[0]
        end = f"exit status {process.returncode}: {(said.strip().splitlines() or [''])[-1]}"
    except subprocess.TimeoutExpired:
        end = f"not done in {options.deadline} s"
    finally:
        # The process has its own session, so it must also be killed after Ctrl-C.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if not report.exists():
        return [{"test": file, "outcome": "lost", "reason": end}]
    cases = ElementTree.parse(report).iter("testcase")
    found = [outcome(case) for case in cases]
    if process.returncode not in (0, 1, 5) or (process.returncode and not found):
        found.append({"test": file, "outcome": "lost", "reason": end})
    return found


def outcome(case: ElementTree.Element) -> Outcome:
    """The outcome of one test from pytest's report."""
    file = case.get("classname", "").removeprefix("array_api_tests.")
    name = f"{file}::{case.get('name', '')}"
    for tag, word in (("error", "failed"), ("failure", "failed"), ("skipped", "skipped")):
        part = case.find(tag)
        if part is not None:
            reason = part.get("message", "").strip().partition("\n")[0][:200]
            return {"test": name, "outcome": word, "reason": reason}
    return {"test": name, "outcome": "passed", "reason": ""}


def passed(outcomes: list[Outcome]) -> set[str]:
    return {each["test"] for each in outcomes if each["outcome"] == "passed"}


def verdict(namespaces: dict[str, list[Outcome]]) -> int:
    """0 if no namespace passes fewer tests than NumPy; without NumPy, 0 if no test failed."""
    least = len(passed(namespaces[PEER])) if PEER in namespaces else None
    ours = [found for name, found in namespaces.items() if name != PEER]
    if least is None:
        return int(any(each["outcome"] in ("failed", "lost") for found in ours for each in found))
    return int(any(len(passed(found)) < least for found in ours))


def tables(namespaces: dict[str, list[Outcome]]) -> str:
    """Counts for each namespace, and the reasons of failures, the most frequent first."""
    lines: list[str] = []
    for name, outcomes in namespaces.items():
        counts = Counter(each["outcome"] for each in outcomes)
        ran = len(outcomes) - counts["skipped"]
        share = f" ({100 * counts['passed'] / ran:.1f} % of those that ran)" if ran else ""
        lines.append(
            f"{name}: {len(outcomes)} tests, {counts['passed']} passed{share}, "
            f"{counts['failed']} failed, {counts['lost']} lost, {counts['skipped']} skipped"
        )
    good_elsewhere = passed(namespaces.get(PEER, []))
    for name, outcomes in namespaces.items():
        groups: dict[str, list[str]] = defaultdict(list)
        for each in outcomes:
            if each["outcome"] in ("failed", "lost"):
                is_alone = name == PEER or PEER not in namespaces
                mark = "" if is_alone or each["test"] in good_elsewhere else " (NumPy too)"
                groups[general(each["reason"])].append(each["test"] + mark)
        if groups:
            lines.append(f"\n{name}, failed:")
        for reason, tests in sorted(groups.items(), key=lambda group: -len(group[1])):
            lines.append(f"{len(tests):5}  {reason}")
            lines += [f"       {test}" for test in tests]
    return "\n".join(lines)


def general(reason: str) -> str:
    """A reason without the parts that differ between tests."""
    return re.sub(r"\d+", "N", re.sub(r"0x[0-9a-f]+", "0x..", reason))[:160]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
