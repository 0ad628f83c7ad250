"""How much processor time each test takes: recorded by a whole run, and used by every later one.

`pytest --wide --record-times` writes `tests/recorded_times.json`: the seconds of
each test that takes noticeable time, with those of the processes that it starts. A busy machine
adds to processor time, too, though less than to the time that passes: record on an idle one. The
records decide two things, and no result:

- which tests are `wide`, and left to `.ci/run` and the pre-push hook;
- which files begin first, so that no process is left alone with a long one.

A test without a record counts as quick.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from helpers.repository.checkout import ROOT

FILE = ROOT / "tests" / "recorded_times.json"
# Shorter tests are not recorded: they are most tests.
_LEAST_S = 0.1
# A case that takes longer is wide, unless it is the quickest of its test.
_WIDE_S = 0.15
# Nor has a plain run more cases of one test than take this long together; a case without a record
# counts as a few hundredths of a second. So at most five stay.
_OF_ONE_S = 0.2
_SHORT_S = 0.04
# A test whose quickest case takes longer is wide as a whole, unless it plants a bug for a checker.
_MOST_S = 0.3
CHECKERS = re.compile("plant|is_found|are_found|_finds_|catch|is_seen")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def read(file: Path = FILE) -> dict[str, float]:
    """The recorded seconds by test; none where there is no record."""
    return json.loads(file.read_text()) if file.exists() else {}


class Recorder:
    """The plugin that measures. With several processes each measures its own tests."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self.spent_s: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = _spent_s()
        result = yield
        self.spent_s[item.nodeid] = _spent_s() - before
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take the records of a process of this run."""
        self.spent_s |= getattr(node, "workeroutput", {}).get("spent_s", {})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["spent_s"] = self.spent_s
            return
        write(self.spent_s, self._file)


def write(spent_s: Mapping[str, float], file: Path = FILE) -> None:
    """Replace the records of these tests' files; the records of other files stay."""
    files = {_file_of(test) for test in spent_s}
    kept = {test: s for test, s in read(file).items() if _file_of(test) not in files}
    kept |= {test: round(s, 1) for test, s in spent_s.items() if s >= _LEAST_S}
    file.write_text(json.dumps(dict(sorted(kept.items())), indent=0, ensure_ascii=False) + "\n")


def by_file(spent_s: Mapping[str, float]) -> dict[str, float]:
    """The recorded seconds of each file."""
    found: dict[str, float] = defaultdict(float)
    for test, s in spent_s.items():
        found[_file_of(test)] += s
    return found


def wide(spent_s: Mapping[str, float], tests: Iterable[str]) -> set[str]:
    """Those of these tests that a plain run leaves out.

    Of each test function the quickest cases stay, and at least one, if it is not long itself, or
    shows that a checker finds a planted bug. So a plain run has an example of each check, and each
    planted bug that is quickly found.
    """
    cases: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        cases[_function_of(test)].append(test)
    found: set[str] = set()
    for function, of_one in cases.items():
        # In the order of the file where the times are equal.
        quickest, *others = sorted(of_one, key=lambda test: spent_s.get(test, _SHORT_S))
        is_checker = CHECKERS.search(function.partition("::")[2])
        total_s = spent_s.get(quickest, _SHORT_S)
        if total_s > _MOST_S and not is_checker:
            found.add(quickest)
        for each in others:
            own_s = spent_s.get(each, _SHORT_S)
            total_s += own_s
            if own_s > _WIDE_S or (total_s > _OF_ONE_S + 1e-9 and not is_checker):
                found.add(each)
    return found


def _function_of(test: str) -> str:
    return test.partition("[")[0]


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _spent_s() -> float:
    """Processor seconds of this process, and of those that it started and waited for."""
    fork_server = sys.modules.get("helpers.repository.fork_server")
    pids = fork_server.pids() if fork_server is not None else ()
    return sum(os.times()[:4]) + sum(map(_spent_by_children_s, pids))


def _spent_by_children_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    # The 16th and 17th fields of the line (proc(5)) are times of children that were waited for.
    return (int(fields[13]) + int(fields[14])) * _TICK_S
