"""Runs a foreign test-suite, one process for each module: the common part of such benches.

If a process dies, its current test has failed, and the module goes on behind that test in another
process. If a process misses its deadline, the next one begins with the current test, and only a
test that takes all of a process's time has failed.
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
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from bench.checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Outcome = dict[str, object]
# The outcome of a finding of checks, which belongs to no test.
FOUND = "found"
# A program that waits, or has a share of the machine, may take longer than its processor time.
_WAITING = 10
ON_SOFTGPU = ("-m", "cudasync", "run")


def parser(description: str) -> argparse.ArgumentParser:
    """The options of every suite."""
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    made.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="only modules with a WORD in the name; @ at its end stands for the name's end",
    )
    made.add_argument(
        "--deadline",
        type=int,
        default=300,
        metavar="S",
        help="the deadline of a process in seconds of processor time; the next goes on (300)",
    )
    made.add_argument(
        "--json", metavar="FILE", help="keep the outcome of each test; a --part updates its part"
    )
    made.add_argument(
        "--part", default="1/1", metavar="K/N", help="every Nth module, from the Kth (1/1)"
    )
    made.add_argument(
        "--check", metavar="KINDS", help="check each program, as `cudasync run --check` does"
    )
    made.add_argument("--table", metavar="FILE", help="the table of a kept FILE; no run")
    return made


def checked(options: argparse.Namespace) -> dict[str, str]:
    """The environment variables that turn checks on, if the options ask for them."""
    return {"CUDASYNC_CHECKS": options.check} if options.check else {}


def kept_tests(file: str) -> list[Outcome]:
    tests: list[Outcome] = json.loads(Path(file).read_text(encoding="utf-8"))["tests"]
    return tests


def go_through(
    modules: Sequence[str],
    options: argparse.Namespace,
    *,
    known: dict[str, object],
    run: Callable[[str], list[Outcome]],
) -> list[Outcome]:
    """Run the selected modules, and keep their outcomes as the run goes on."""
    # SIGTERM also ends the running child process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found = [m for m in modules if not options.words or any(w in f"{m}@" for w in options.words)]
    number, parts = (int(word) for word in options.part.split("/"))
    found = found[number - 1 :: parts]
    # Results of other modules stay in the file, so that a part can be run again.
    kept: list[Outcome] = []
    if options.json and (options.words or parts > 1) and Path(options.json).exists():
        report = json.loads(Path(options.json).read_text(encoding="utf-8"))
        kept = [test for test in report["tests"] if not of_one(str(test["test"]), found)]
        if kept and report["commit"] != known["commit"]:
            known["commit"] = None  # The file has results of several commits.
    tests: list[Outcome] = []
    for number, module in enumerate(found, 1):
        began = monotonic()
        outcomes = run(module)
        tests += outcomes
        counts = Counter(str(outcome["outcome"]) for outcome in outcomes)
        words = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        print(
            f"[{number}/{len(found)}] {module}: {words} ({monotonic() - began:.0f} s)", flush=True
        )
        if options.json:
            report = {**known, "tests": shortened(kept + tests)}
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return tests


def status_of(tests: list[Outcome]) -> int:
    """0 if every test passed or was skipped, else 1."""
    return int(any(outcome["outcome"] not in ("passed", "skipped") for outcome in tests))


def of_one(test: str, names: Sequence[str]) -> bool:
    return any(test == name or test.startswith((f"{name}.", f"{name}::")) for name in names)


def shortened(tests: list[Outcome]) -> list[Outcome]:
    """The tests in order and without tracebacks, which name files of this machine."""
    return [
        {key: value for key, value in test.items() if key != "trace"}
        for test in sorted(tests, key=lambda test: str(test["test"]))
    ]


def run_module(
    child: Path,
    module: str,
    deadline_s: float,
    variables: Mapping[str, str] | None = None,
    *,
    through: Sequence[str] = ON_SOFTGPU,
) -> list[Outcome]:
    """The outcome of each test, in as many processes as necessary.

    `child` is called with the module, a file for its record, and the finished tests, which it
    leaves out. If a test runs again, its last run counts, even if the process dies. `through` are
    Python's arguments before the child.
    """
    outcomes: dict[str, Outcome] = {}
    findings: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        while True:
            record = Path(folder) / "record"
            record.unlink(missing_ok=True)
            command = [str(child), module, str(record), *outcomes]
            ended = run_process(command, folder, deadline_s, variables, through=through)
            end = ended.in_words()
            findings += findings_in(module, ended.said)
            lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
            events = [json.loads(line) for line in lines]
            under_way, has_outcomes = "", False
            for event in events:
                if "begun" in event:
                    under_way = str(event["begun"])
                elif "outcome" in event:
                    outcomes[str(event["test"])] = event
                    under_way, has_outcomes = "", True
            if any("over" in event for event in events):
                return [*outcomes.values(), *findings]
            if any("again" in event for event in events):
                continue
            if ended.status is None and under_way and has_outcomes:
                # The tests before it took the time: it has the next process to itself.
                continue
            lost = under_way or module
            outcomes[lost] = {"test": lost, "outcome": "lost", "reason": end}
            if not under_way:
                return [*outcomes.values(), *findings]


def findings_in(module: str, said: str) -> list[Outcome]:
    """The findings of checks in a process's output, each as an outcome."""
    blocks = re.findall(r"^cudasync check: (\w+: .*(?:\n    .*)*)", said, re.MULTILINE)
    # This removes the folders of this machine.
    folders = re.compile(rf"/\S*/site-packages/|{re.escape(str(ROOT))}/")
    said_of = (folders.sub("", re.sub(r"\s*\n\s*", " | ", block)) for block in blocks)
    return [{"test": module, "outcome": FOUND, "reason": each} for each in said_of]


class Ended:
    """The end of a process and its output. The status is None if the deadline ended it."""

    def __init__(self, status: int | None, said: str, deadline_s: float) -> None:
        self.status = status
        self.said = said.strip()
        self._deadline_s = deadline_s

    def in_words(self) -> str:
        if self.status is None:
            return f"not done in {self._deadline_s:.0f} s"
        if self.status < 0:
            return f"ended by {signal.Signals(-self.status).name}"
        lines = self.said.splitlines()
        return f"exit status {self.status}: {lines[-1] if lines else ''}"


def limited(
    command: Sequence[str], folder: Path | str, processor_s: float, variables: Mapping[str, str]
) -> tuple[int | None, str]:
    """The exit status, or None if its processor time ended it, and the output of the command."""
    # The shell sets the limit; SIGXCPU ends the program.
    shell = ["sh", "-c", f'ulimit -S -t {processor_s:.0f}; exec "$@"', ""]
    status, said = end_of([*shell, *command], folder, _WAITING * processor_s, variables)
    return None if status == -signal.SIGXCPU else status, said


def run_process(
    arguments: Sequence[str],
    folder: str,
    deadline_s: float,
    variables: Mapping[str, str] | None = None,
    *,
    through: Sequence[str] = ON_SOFTGPU,
) -> Ended:
    """Run a program on the software GPU to its end or its deadline, in processor time."""
    command = [sys.executable, "-W", "ignore", *through, *arguments]
    ours = {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    return Ended(*limited(command, folder, deadline_s, {**ours, **(variables or {})}), deadline_s)


def end_of(
    command: Sequence[str], folder: Path | str, deadline_s: float, variables: Mapping[str, str]
) -> tuple[int | None, str]:
    """The exit status, or None if the deadline ended it, and the whole output of the command."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # The process has its own session, so it must also be killed after Ctrl-C.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return status, output.read()


_TOLD = ("failed", "refused", "lost", "skipped")


def table(tests: list[Outcome], prefix: str = "") -> str:
    """Counts, and the reasons of failures and skips, the most frequent first."""
    lines = [counted(tests)]
    for kind, title in (*((each, each) for each in _TOLD), (FOUND, "found by checks")):
        groups: dict[str, list[str]] = defaultdict(list)
        for test in tests:
            if test["outcome"] == kind:
                groups[general(str(test["reason"]))].append(str(test["test"]))
        if groups:
            lines.append(f"\n{title}:")
        for reason, names in sorted(groups.items(), key=lambda group: -len(group[1])):
            lines.append(f"{len(names):5}  {reason}\n       {names[0].removeprefix(prefix)}")
    return "\n".join(lines)


def counted(tests: list[Outcome], what: str = "tests") -> str:
    """The number of tests, and their outcomes."""
    counts = Counter(str(test["outcome"]) for test in tests)
    tests = [test for test in tests if test["outcome"] != FOUND]
    ran = len(tests) - counts["skipped"]
    share = f" ({100 * counts['passed'] / ran:.1f} % of those that ran)" if ran else ""
    refused = f"{counts['refused']} refused, " if counts["refused"] else ""
    return (
        f"{len(tests)} {what}: {counts['passed']} passed{share}, {counts['failed']} failed, "
        f"{refused}{counts['lost']} lost with their process, {counts['skipped']} skipped"
        + (f", {counts[FOUND]} findings" if counts[FOUND] else "")
    )


def general(reason: str) -> str:
    """A reason without the parts that differ between tests."""
    reason = re.sub(r"0x[0-9a-f]+", "0x..", reason)
    reason = re.sub(r"_ZN\w+|\$\w+|%\w+", "..", reason)
    return re.sub(r"\d+", "N", reason)[:160]
