"""A test that a checker finds a planted bug may search three times.

Such a test claims that something exists: a schedule, or an example, that shows the bug. Finding it
once proves the claim. A search that found nothing proves nothing, and on a busy machine threads
take a schedule that shows nothing. So it searches again, in the same process and with fresh
fixtures. Only a failed assertion counts as "found nothing": any other error stays an error.

A test of a property claims that something never happens. It fails at the first counterexample, and
nothing runs it again.

A plain run may begin such a search with an example that is known to show the bug (`shown_by`). In
CI random examples alone must show it, or else the property would not be known to find it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import example, settings

SEARCHES = 3
# The names of such tests. A name that goes on behind these words, as in "is found wherever it is",
# claims that something always happens.
_CLAIMS = re.compile("plant|(is|are)_found(_by_some_schedule)?$|left_out_is_seen")
# How the message begins if an assertion failed, or an awaited error was not raised.
NOTHING = ("assert ", "AssertionError", "Failed: DID NOT RAISE")


def begins_with_known() -> bool:
    """True if a search may begin with an example that is known to show the bug."""
    return settings.get_current_profile_name() == "plain"


def shown_by(*arguments: Any) -> Callable[[Any], Any]:
    """Begin a search of a plain run with this example, whose phases include `Phase.explicit`."""
    return example(*arguments) if begins_with_known() else lambda search: search


def searches(item: pytest.Item) -> bool:
    """True for a test that claims that a bug is found, by its name."""
    return _CLAIMS.search(getattr(item, "originalname", item.name)) is not None


@pytest.hookimpl
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not searches(item):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for search in range(1, SEARCHES + 1):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        for report in reports:
            # A field of a report reaches the process that prints the summary.
            report.searches = search
        if not _found_nothing(reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _found_nothing(reports: Sequence[pytest.TestReport]) -> bool:
    failed = [each for each in reports if each.failed]
    return len(failed) == 1 and failed[0].when == "call" and _message(failed[0]).startswith(NOTHING)


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return "" if crash is None else str(crash.message)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the tests that searched more than once: often means that the search is too short."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "searches", 1) > 1 and report.when == "call":
                terminalreporter.write_line(f"searched {report.searches} times: {report.nodeid}")
