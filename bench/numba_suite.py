"""numba-cuda's own test-suite, which ships in its wheel, on the software GPU.

    python bench/numba_suite.py                      every module, each in a process of its own
    python bench/numba_suite.py test_atomics nrt     only those with one of these in the name
    python bench/numba_suite.py --json FILE          and keep what came of each test
    python bench/numba_suite.py --part 3/12          the third of twelve parts
    python bench/numba_suite.py --table FILE         what such a file says; nothing is run

A process that dies or is not done by its deadline costs the test that it was at; the module goes
on behind it in another one. Exit status: 0 if every test passed or was skipped, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import machine
from checkout import ROOT

CHILD = ROOT / "bench" / "numba_module.py"
TESTS = "numba/cuda/tests"
# Benchmarks want a plugin of pytest's, and the simulator is another device.
LEFT_OUT = {"benchmarks", "cudasim"}

Outcome = dict[str, object]


def main() -> int:
    options = parse()
    if options.table:
        print(table(json.loads(Path(options.table).read_text(encoding="utf-8"))["tests"]))
        return 0
    # So that a process under way ends with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found = [m for m in modules() if not options.words or any(w in m for w in options.words)]
    number, parts = (int(word) for word in options.part.split("/"))
    found = found[number - 1 :: parts]
    # What a file has of other modules stays in it, so that a part can be run again.
    kept: list[Outcome] = []
    known = facts()
    if options.json and (options.words or parts > 1) and Path(options.json).exists():
        report = json.loads(Path(options.json).read_text(encoding="utf-8"))
        kept = [test for test in report["tests"] if not of_one(str(test["test"]), found)]
        if kept and report["commit"] != known["commit"]:
            known["commit"] = None  # It is of no one commit.
    tests: list[Outcome] = []
    for number, module in enumerate(found, 1):
        began = monotonic()
        outcomes = run_module(module, options.deadline)
        tests += outcomes
        counts = Counter(str(outcome["outcome"]) for outcome in outcomes)
        words = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        short = module.removeprefix("numba.cuda.tests.")
        print(f"[{number}/{len(found)}] {short}: {words} ({monotonic() - began:.0f} s)", flush=True)
        if options.json:
            report = {**known, "tests": shortened(kept + tests)}
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(table(tests))
    return int(any(outcome["outcome"] not in ("passed", "skipped") for outcome in tests))


def of_one(test: str, names: list[str]) -> bool:
    return any(test == name or test.startswith(f"{name}.") for name in names)


def shortened(tests: list[Outcome]) -> list[Outcome]:
    """In order, and without the tracebacks, which name files of the machine."""
    return [
        {key: value for key, value in test.items() if key != "trace"}
        for test in sorted(tests, key=lambda test: str(test["test"]))
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only modules with one of these in the name"
    )
    parser.add_argument(
        "--deadline", type=int, default=300, metavar="S", help="seconds for a process (300)"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="keep what came of each test; a part replaces its part"
    )
    parser.add_argument(
        "--part", default="1/1", metavar="K/N", help="every Nth module, from the Kth on (1/1)"
    )
    parser.add_argument("--table", metavar="FILE", help="what such a file says; nothing is run")
    return parser.parse_args()


def facts() -> dict[str, object]:
    versions = {name: machine.installed(name) for name in ("numba", "numba-cuda", "cuda-core")}
    return {"program": "numba_suite", **machine.facts(), **versions}


def modules() -> list[str]:
    """The suite's modules, by the names under which they are imported."""
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


def run_module(module: str, deadline_s: float) -> list[Outcome]:
    """What came of each test, in as many processes as it takes."""
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        while True:
            record = Path(folder) / "record"
            record.unlink(missing_ok=True)
            done = [str(outcome["test"]) for outcome in outcomes]
            end = run_process([module, str(record), *done], folder, deadline_s)
            lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
            events = [json.loads(line) for line in lines]
            outcomes += [event for event in events if "outcome" in event]
            if any("over" in event for event in events):
                return outcomes
            if any("again" in event for event in events):
                continue
            ended = {outcome["test"] for outcome in outcomes}
            begun = [str(e["begun"]) for e in events if "begun" in e and e["begun"] not in ended]
            outcomes.append(
                {"test": begun[-1] if begun else module, "outcome": "lost", "reason": end}
            )
            if not begun:
                return outcomes


def run_process(arguments: list[str], folder: str, deadline_s: float) -> str:
    """Run the child to its end or its deadline; says how it ended."""
    command = [sys.executable, "-W", "ignore", "-m", "cudasync", "run", str(CHILD), *arguments]
    with (Path(folder) / "output").open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            return f"not done in {deadline_s:.0f} s"
        finally:
            # Also after Ctrl-C, of which it does not hear: it has a session of its own.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        said = output.read().strip().splitlines()
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return f"exit status {status}: {said[-1] if said else ''}"


def table(tests: list[Outcome]) -> str:
    """Counts, and the reasons of what failed and what was skipped, the most frequent first."""
    counts = Counter(str(test["outcome"]) for test in tests)
    ran = len(tests) - counts["skipped"]
    share = f" ({100 * counts['passed'] / ran:.1f} % of those that ran)" if ran else ""
    lines = [
        f"{len(tests)} tests: {counts['passed']} passed{share}, {counts['failed']} failed, "
        f"{counts['lost']} lost with their process, {counts['skipped']} skipped"
    ]
    for kind, title in (("failed", "failed"), ("lost", "lost"), ("skipped", "skipped")):
        groups: dict[str, list[str]] = defaultdict(list)
        for test in tests:
            if test["outcome"] == kind:
                groups[general(str(test["reason"]))].append(str(test["test"]))
        if groups:
            lines.append(f"\n{title}:")
        for reason, names in sorted(groups.items(), key=lambda group: -len(group[1])):
            example = names[0].removeprefix("numba.cuda.tests.")
            lines.append(f"{len(names):5}  {reason}\n       {example}")
    return "\n".join(lines)


def general(reason: str) -> str:
    """A reason without what differs from test to test."""
    reason = re.sub(r"0x[0-9a-f]+", "0x..", reason)
    reason = re.sub(r"_ZN\w+|\$\w+|%\w+", "..", reason)
    return re.sub(r"\d+", "N", reason)[:160]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # What was kept up to here is in the file.
        sys.exit(128 + signal.SIGINT)
