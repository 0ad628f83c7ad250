"""One file of NVIDIA's tests in this process, with a line of JSON for each step.

    python -m cudasync run bench/suites/nvidia_module.py FILE RECORD [SKIP ...]

FILE is from the checkout that NVIDIA_CHECKOUT names. Outcomes are pytest's. The record also has the
number of commands that a test gave to a stream or to a capture. Tests named after RECORD are left
out. nvidia_suite.py calls this program.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import importlib.util
import os
import traceback
from typing import IO, TYPE_CHECKING, Any

import pytest

from bench.suites import journal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The module that NVIDIA's bindings have in their tree, but not in their wheel.
_HELPERS = "cuda.bindings._test_helpers"


class Recorder:
    """A pytest plugin that writes down each outcome at once."""

    def __init__(self, record: IO[str], prefix: str, skipped: set[str]) -> None:
        self._record = record
        self._prefix = prefix
        self._skipped = skipped
        self._outcome: tuple[str, str, str] = ("passed", "", "")
        self._seconds = 0.0
        self._enqueued = 0
        self.is_lost = False

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._name(item.nodeid) not in self._skipped]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            name = self._name(report.nodeid)
            if name in self._skipped:
                return
            outcome = "skipped" if report.outcome == "skipped" else "failed"
            reason = _reason(report.longrepr)
            journal.write(self._record, test=name, outcome=outcome, reason=reason, seconds=0)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcome, self._seconds, self._enqueued = ("passed", "", ""), 0.0, enqueued[0]
        journal.write(self._record, begun=self._name(nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        self._seconds += call.duration
        if report.outcome == "skipped":
            expected = hasattr(report, "wasxfail")
            reason = "fails as expected" if expected else _reason(report.longrepr)
            self._outcome = ("passed" if expected else "skipped", reason, "")
        elif report.outcome == "failed":
            # A fault ends the context, as on a GPU. Later tests need a new process.
            self.is_lost = self.is_lost or journal.is_lost()
            if call.excinfo is None:
                self._outcome = ("failed", "succeeds, and was expected to fail", "")
            else:
                error = (call.excinfo.type, call.excinfo.value, call.excinfo.tb)
                trace = "".join(traceback.format_exception(*error))[-6000:]
                self._outcome = ("failed", journal.last_line(error), trace)
            if self.is_lost:
                item.session.shouldstop = "a context is lost"
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        outcome, reason, trace = self._outcome
        journal.write(
            self._record,
            test=self._name(nodeid),
            outcome=outcome,
            reason=reason,
            trace=trace,
            seconds=round(self._seconds, 2),
            enqueued=enqueued[0] - self._enqueued,
        )

    def _name(self, nodeid: str) -> str:
        return f"{self._prefix}{nodeid}"


enqueued = [0]
"""The number of commands that the process has given to streams and captures so far."""


def count_commands() -> None:
    """Count the commands enqueued from now on, whichever thread executes them."""
    from cudasync.softgpu.core.streams.dependency_tracking import Chains

    # Event records and event waits are often no commands of their own.
    for verb in ("enqueue", "record", "hold"):
        setattr(Chains, verb, _counting(getattr(Chains, verb)))


def _counting(verb: Callable[..., None]) -> Callable[..., None]:
    def counted(*arguments: Any, **named: Any) -> None:
        enqueued[0] += 1
        verb(*arguments, **named)

    return counted


def find_helpers(checkout: Path) -> None:
    """Let the tests import the module that is only in the tree of the bindings."""
    folder = checkout.joinpath("cuda_bindings", *_HELPERS.split("."))
    if importlib.util.find_spec(_HELPERS) is not None or not folder.is_dir():
        return
    spec = importlib.util.spec_from_file_location(
        _HELPERS, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_HELPERS] = module
    spec.loader.exec_module(module)


def _reason(said: object) -> str:
    """The reason of a skip or of a failed collection, in one line."""
    text = str(said[2]) if isinstance(said, tuple) else str(said)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip().removeprefix("Skipped: ")[:500] if lines else ""


def run(
    path: str,
    skipped: Sequence[str],
    prefix: str,
    options: Sequence[str],
    plugins: Sequence[object] = (),
) -> int:
    """Run pytest with these options, and record each test, named with `prefix`, in the file at
    `path`; the exit status of this process."""
    # A module of theirs may have the name of a file in this folder.
    sys.path.remove(str(Path(__file__).resolve().parent))
    with open(path, "a", encoding="utf-8") as record:
        recorder = Recorder(record, prefix, set(skipped))
        status = pytest.main(
            [*options, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
            plugins=[*plugins, recorder],
        )
        if recorder.is_lost:
            journal.write(record, again=True)
        elif status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            return int(status)
        else:
            journal.write(record, over=True)
    return 0


def main(file: str, path: str, *skipped: str) -> int:
    """Run the tests that are not skipped; the exit status is 0 unless the process itself fails."""
    checkout = Path(os.environ["NVIDIA_CHECKOUT"])
    # The root is the package's folder, as its own pytest.ini and conftest.py expect.
    package, _, inside = file.partition("/")
    find_helpers(checkout)
    count_commands()
    os.chdir(checkout / package)
    options = [inside, "--rootdir=."]
    return run(path, skipped, f"{package}/", options)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
if __name__ == "__mp_main__":
    # A test spawned this process, and its own module is imported after this line.
    find_helpers(Path(os.environ["NVIDIA_CHECKOUT"]))
