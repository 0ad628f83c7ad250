"""A module of unittest's tests in this process, with a line of JSON in a record for each step.

The record is written as the run goes on, so that it shows what ran when a process died: `begun`
without an outcome.
"""

from __future__ import annotations

import traceback
import unittest
from time import monotonic
from typing import IO, TYPE_CHECKING, Any

from bench.suites import journal

if TYPE_CHECKING:
    from collections.abc import Collection


class Recorder(unittest.TestResult):
    """Writes down each outcome at once."""

    def __init__(self, record: IO[str]) -> None:
        super().__init__()
        self._record = record
        self._began = 0.0
        self._outcome: tuple[str, str, str] = ("passed", "", "")

    def write(self, **facts: object) -> None:
        journal.write(self._record, **facts)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome = ("passed", "", "")
        self._began = monotonic()
        self.write(begun=test.id())

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        outcome, reason, trace = self._outcome
        took = round(monotonic() - self._began, 2)
        self.write(test=test.id(), outcome=outcome, reason=reason, trace=trace, seconds=took)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._outcome = ("skipped", reason, "")

    def addFailure(self, test: unittest.TestCase, error: Any) -> None:
        self._failed("failed", error)

    def addError(self, test: unittest.TestCase, error: Any) -> None:
        if error[0].__name__ == "Skipped":  # pytest's exception, which unittest does not know
            self.addSkip(test, str(error[1]))
            return
        if not isinstance(test, unittest.TestCase) or not hasattr(test, "_testMethodName"):
            # The set-up of a class or module failed, so all of its tests are missing.
            self.write(test=test.id(), outcome="failed", reason=journal.last_line(error), seconds=0)
            return
        self._failed("failed", error)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, error: Any) -> None:
        if error is not None:
            self._failed("failed", error)

    def addExpectedFailure(self, test: unittest.TestCase, error: Any) -> None:
        self._outcome = ("passed", "fails as expected", "")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._outcome = ("failed", "succeeds, and was expected to fail", "")

    def _failed(self, outcome: str, error: Any) -> None:
        # A fault ends the context, as on a GPU. Later tests need a new process.
        self.shouldStop = self.shouldStop or journal.is_lost()
        trace = "".join(traceback.format_exception(*error))
        self._outcome = (outcome, journal.last_line(error), trace[-6000:])


def flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    """The tests of nested suites."""
    tests: list[unittest.TestCase] = []
    for item in suite:
        tests += flat(item) if isinstance(item, unittest.TestSuite) else [item]
    return tests


def run(module: str, path: str, skipped: Collection[str]) -> None:
    """Run the tests of `module` that are not skipped, and write them into the record at `path`."""
    with open(path, "a", encoding="utf-8") as record:
        recorder = Recorder(record)
        try:
            suite = unittest.TestLoader().loadTestsFromName(module)
        except BaseException as problem:
            if type(problem).__name__ != "Skipped":
                raise
            recorder.write(test=module, outcome="skipped", reason=str(problem), seconds=0)
            suite = unittest.TestSuite()
        tests = [test for test in flat(suite) if test.id() not in skipped]
        recorder.write(tests=[test.id() for test in tests])
        unittest.TestSuite(tests).run(recorder)
        recorder.write(**{"again" if recorder.shouldStop else "over": True})
