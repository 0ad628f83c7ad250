"""Outcomes of tasks: read from what a process leaves, and plain values, as they stand in the JSON.

An outcome names its task, and counts what passed, failed and was left out in it. A task passes if
its process ends with 0 and its result can be read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from pathlib import Path

Outcome = dict[str, Any]

# The kinds of tasks: tests by pytest, a bench program, a program that counts its cases, any other.
TESTS, BENCH, COUNTED, PROGRAM = "tests", "bench", "counted", "program"
PASSED, FAILED, LEFT_OUT = "passed", "failed", "left out"

# What pytest ends with if it collected no test that is to run.
_NO_TESTS = 5
MOST_FAILURES = 20


def blank(task: str) -> Outcome:
    return {
        "task": task,
        "state": PASSED,
        "why": None,
        "passed": 0,
        "failed": 0,
        "left_out": {},  # the number for each reason
        "failures": [],  # names of failed tests or cases
        "seconds": 0.0,
    }


def left_out(task: str, why: str) -> Outcome:
    return blank(task) | {"state": LEFT_OUT, "why": why}


def outcome_of(kind: str, task: str, result: Path, status: int) -> Outcome:
    """What a process with this exit status has left; negative if a signal ended it."""
    found = blank(task)
    read = {TESTS: _tests, BENCH: _bench, COUNTED: _counted}.get(kind)
    if read is None:
        found["passed"] = int(status == 0)
    elif not result.exists():
        found |= {"state": FAILED, "why": f"{ended(status)}, and left no result"}
        return found
    else:
        try:
            read(found, result)
        except (ValueError, KeyError, TypeError, ElementTree.ParseError) as error:
            found |= {"state": FAILED, "why": f"its result cannot be read: {error}"}
            return found
    if kind == TESTS and status == _NO_TESTS:
        status = 0
    if status or found["failed"]:
        found |= {"state": FAILED, "why": ended(status)}
    return found


def ended(status: int) -> str:
    return f"ended by signal {-status}" if status < 0 else f"ended with {status}"


def _tests(found: Outcome, result: Path) -> None:
    """pytest's JUnit file: a case for each test, and for each file that cannot be read."""
    reasons: Counter[str] = Counter()
    for case in ElementTree.parse(result).iter("testcase"):
        bad = next((each for each in case if each.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        if bad is not None:
            found["failed"] += 1
            if len(found["failures"]) < MOST_FAILURES:
                found["failures"].append(_node(case))
        elif skipped is not None and skipped.get("type") != "pytest.xfail":
            reasons[skipped.get("message", "skipped")] += 1
        else:
            found["passed"] += 1
    found["left_out"] = dict(reasons)


def _node(case: ElementTree.Element) -> str:
    """The name under which pytest runs the case again."""
    path = case.get("classname", "").replace(".", "/") + ".py"
    name = case.get("name", "")
    return f"{path}::{name}" if name else path


def _bench(found: Outcome, result: Path) -> None:
    """A bench's report: its cases have passed, as their contenders agree."""
    report = json.loads(result.read_text(encoding="utf-8"))
    found["report"] = report
    found["passed"] = len(report["cases"])
    found["left_out"] = dict(Counter(str(why) for why in report["absent"].values()))


def _counted(found: Outcome, result: Path) -> None:
    """A program of this folder: its passed, failed and left out cases, and maybe a report."""
    told = json.loads(result.read_text(encoding="utf-8"))
    found["passed"] = len(told["passed"])
    found["failed"] = len(told["failed"])
    found["failures"] = [f"{name}: {why}" for name, why in told["failed"].items()][:MOST_FAILURES]
    found["left_out"] = dict(Counter(told["left_out"].values()))
    if "report" in told:
        found["report"] = told["report"]


def table(parts: list[dict]) -> str:
    """Part, passed, failed, left out and why, seconds; and the failures under them."""
    lines = ["| part | passed | failed | left out, and why | seconds |", "|---|---:|---:|---|---:|"]
    for part in parts:
        tasks = part["tasks"]
        passed, failed = (sum(each[name] for each in tasks) for name in ("passed", "failed"))
        name = part["name"] + ("" if part["is_over"] else " (interrupted)")
        seconds = f"{part['seconds']:.0f}"
        lines.append(f"| {name} | {passed} | {failed} | {_left_out(tasks)} | {seconds} |")
    for part in parts:
        for each in part["tasks"]:
            if each["state"] == FAILED:
                lines += ["", f"FAILED {each['task']}: {each['why']}"]
                lines += [f"  {name}" for name in each["failures"]]
                lines += [f"  again: {each['repeat']}"]
    return "\n".join(lines)


def _left_out(tasks: list[Outcome]) -> str:
    """The reasons, the most frequent first. Paths and numbers of lines are not part of a reason."""
    reasons: Counter[str] = Counter()
    for each in tasks:
        if each["state"] == LEFT_OUT:
            reasons[each["why"]] += 1
        for why, count in each["left_out"].items():
            reasons[re.sub(r"\s+", " ", why).replace("|", "/")[:80]] += count
    told = [f"{count} {why}" for why, count in reasons.most_common(6)]
    rest = sum(reasons.values()) - sum(count for _, count in reasons.most_common(6))
    return "; ".join([*told, *([f"{rest} for other reasons"] if rest else [])])
