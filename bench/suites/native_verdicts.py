"""The outcome of a native program, by its exit status and output, and counts of programs."""

from __future__ import annotations

import re
import signal
from collections import Counter
from typing import TYPE_CHECKING

from bench.suites import runner

if TYPE_CHECKING:
    from bench.suites.runner import Outcome

_PASS = re.compile(
    r"\bpass(ed|es)?\b|\bsuccess(ful|fully)?\b|\bsucceeded\b|\bcorrect\b|\bverified\b|\bok\b|"
    r"\bmatch(es)?\b|\bidentical\b",
    re.IGNORECASE,
)
_FAILURE = re.compile(
    r"\bfail(ed|s|ures?)?\b|\bmismatch(es)?\b|\bincorrect\b|\bwrong\b|not match|"
    r"\berrors? (at|in|code)\b|\berror: (?![-+.\d])",
    re.IGNORECASE,
)
# Texts that look like a failure, and report that there is none.
_NO_FAILURE = re.compile(
    r"\b(0|no|zero|without)\s+(failed|failures?|mismatch\w*|errors?)\b|"
    r"(failed|failures?|mismatch\w*|errors?)\w*\s*[:=]\s*0(\.0*)?\b|"
    # Programs that demonstrate an assertion.
    r"thread: \[[\d,]+\] Assertion .* failed|failed as expected|generate assertion failures",
    re.IGNORECASE,
)
# A program that counts errors, of a channel for instance, and finds some: a count of 0 elsewhere in
# its output is no verdict.
_COUNTED = re.compile(r"\berrors?\s*[:=]\s*[1-9]\d*\s*$", re.IGNORECASE | re.MULTILINE)
_REFUSED = re.compile(
    r"cudasync (?:software GPU|native): (.*(?:supported|NOT_SUPPORTED|software GPU|CUDA 13).*)"
)
_NO_FILE = re.compile(
    r"No such (?:file|folder)|need to set environment|Assertion `file' failed|could not stat|"
    r"(?:can ?not|can't|could not|couldn't|unable to|error|failed to|not) "
    r"(?:\w+ ){0,3}(?:open|read|find|load|found)",
    re.IGNORECASE,
)
# The exit status of cuda-samples if the device lacks their feature.
_WAIVED = 2


def judged(status: int | None, said: str, *, judges_by_status: bool = False) -> tuple[str, str]:
    """The outcome and its reason for a program with this exit status and output.

    With `judges_by_status`, an exit status of 0 says that the answer is right.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    refused = _REFUSED.search(said)
    if refused:
        return "refused", refused[1]
    if status is None:
        return "lost", f"not done by its deadline: {last}"
    absent = next((line for line in lines if _NO_FILE.search(line)), "")
    if status and absent and "software GPU:" not in said:
        return "skipped", f"lacks a file: {absent}"
    if status < 0:
        return "lost", f"ended by {signal.Signals(-status).name}: {last}"
    if status == _WAIVED and re.search("waiv|not support|require", said, re.IGNORECASE):
        return "skipped", f"waives itself: {last}"
    claims = _NO_FAILURE.sub("" if _COUNTED.search(said) else " passed ", said)
    failure = _FAILURE.search(claims)
    if status or failure:
        told = next((line for line in lines if failure and failure[0] in line), last)
        return "failed", f"exit status {status}: {told}"
    if judges_by_status or _PASS.search(claims):
        return "passed", ""
    return "skipped", "says nothing of its answer"


def summary(tests: list[Outcome]) -> str:
    """What came of the programs that were built, then counts and reasons of all."""
    counts = Counter(map(_end_of, tests))
    built = sum(counts.values()) - counts[""]
    ends = ", ".join(f"{counts[end]} {end}" for end in _ENDS)
    return f"{built} programs built: {ends}\n{runner.table(tests)}"


_ENDS = ("right", "wrong", "refused", "too slow", "crashed", "without a file", "without a verdict")


def _end_of(test: Outcome) -> str:
    """How a program that was built ended, as one of `_ENDS`; "" if it was not built."""
    outcome, reason = str(test["outcome"]), str(test["reason"])
    match outcome:
        case "skipped" if reason.startswith(("does not build", "needs another", "its arguments")):
            return ""
        case "skipped":
            return "without a file" if reason.startswith("lacks a file") else "without a verdict"
        case "lost":
            return "too slow" if reason.startswith("not done") else "crashed"
        case _:
            return {"passed": "right", "failed": "wrong"}.get(outcome, outcome)
