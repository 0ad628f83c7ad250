"""Fixtures and profiles for every test.

cudasync chooses the device under test: the software GPU here, a real GPU with CUDASYNC_DEVICE=cuda.
No test may ask which device it has, except through `Device.is_software`, and only to show a
poisoned byte or a deterministic order.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.lowering import kept_code
from helpers.repository import changed_tests, recorded_times, searches
from hypothesis import HealthCheck, Phase, settings

# The software GPU has as many devices as this says. Test programs use three.
os.environ.setdefault("CUDASYNC_SOFTGPU_DEVICES", "3")
SCHEDULER = os.environ.get("CUDASYNC_SOFTGPU_SCHEDULER", "fifo")
# The tests keep no code in the user's folders, and find none there.
kept_code.keep_nothing()

settings.register_profile("plain", deadline=None, max_examples=10)
settings.register_profile("dev", deadline=None, max_examples=40)
# For processes that tests start: a quick look, without a search for a smaller example.
settings.register_profile(
    "look", deadline=None, max_examples=5, phases=[Phase.generate], database=None
)
# Searches end with the first failing example, which comes soon.
settings.register_profile(
    "search", deadline=None, max_examples=100, phases=[Phase.generate], database=None
)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=200,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "plain")
)


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with Ctrl-C ignored. Programs that a test starts and interrupts
    # would inherit this.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--record-times"):
        config.pluginmanager.register(recorded_times.Recorder())
    config.pluginmanager.register(searches)
    kept_code.keep(config)
    # pytest rewrites the assertions of every package that has a plugin, loaded or not. The library
    # runs as it does for users, and a fresh checkout does not pay for a thousand files. pytest has
    # no public way to say so.
    config.pluginmanager.rewrite_hook._must_rewrite.discard("cudasync")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Name the files of a change, and run all tests in two processes, a file at a time.

    Files that the command names run as usual, so `-s`, `--pdb` and an explicit `-n` keep their
    meaning.
    """
    option = config.option
    if hasattr(config, "workerinput"):
        return None
    names_files = config.args_source is pytest.Config.ArgsSource.ARGS
    # Who names files, or the mark, wants all of these tests.
    option.wide = option.wide or names_files or "wide" in option.markexpr
    if option.changed is not None:
        if names_files:
            raise pytest.UsageError("--changed finds the files by itself: name none")
        config.args = _files_of_the_change(config)
        if not config.args:
            print(f"no test reaches what has changed since {option.changed}")
            return 0
    one_process = option.capture == "no" or option.usepdb or option.collectonly
    can = config.pluginmanager.hasplugin("xdist") and (os.cpu_count() or 1) > 1
    if can and not (names_files or one_process or option.numprocesses is not None):
        option.numprocesses = 2
        option.dist = "loadfile"
        # In the order of the items: the longest file first.
        option.loadscopereorder = False
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of this run what the command line did not say: see `pytest_cmdline_main`."""
    node.workerinput["wide"] = node.config.option.wide


def _files_of_the_change(config: pytest.Config) -> list[str]:
    # What an earlier call read from the files. Reading them all takes seconds.
    kept = None
    if config.pluginmanager.hasplugin("cacheprovider"):
        kept = config.rootpath / config.getini("cache_dir") / "d" / "cudasync" / "imports.json"
    known = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    try:
        changed = changed_tests.changed_files(config.option.changed)
    except changed_tests.UnknownBase as error:
        raise pytest.UsageError(f"--changed {config.option.changed}: {error}") from None
    files = changed_tests.that_reach(changed, known=known)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(known))
    return [str(config.rootpath / each) for each in files]


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.option.changed is None:
        return None
    return f"changed since {config.option.changed}: {len(config.args)} files reach the change"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run the tests marked slow, too")
    parser.addoption("--all-cases", action="store_true", help="run all cases of sampled tests")
    parser.addoption(
        "--wide", action="store_true", help="run the tests that a plain run leaves out as too long"
    )
    parser.addoption(
        "--changed",
        nargs="?",
        const="HEAD",
        metavar="BASE",
        help="run the test files that reach what has changed since BASE (default: since HEAD)",
    )
    parser.addoption(
        "--record-times", action="store_true", help="write tests/recorded_times.json at the end"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect without looking for garbage: a tenth of the time, and all that is made stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The longest file first, so that no process is left alone with one at the end.
    times = recorded_times.by_file(recorded_times.read())
    items.sort(key=lambda item: -times.get(item.nodeid.partition("::")[0], 0))
    if os.environ.get("CUDASYNC_DEVICE") == "cuda":
        lost = pytest.mark.skip(reason="no such device: a GPU that failed stays lost")
        for item in items:
            if "loses_device" in item.keywords:
                item.add_marker(lost)
    _mark_wide_tests(items)
    skip = pytest.mark.skip(reason="needs --run-slow")
    takes_slow = config.getoption("--run-slow")
    takes_all = config.getoption("--all-cases") or takes_slow
    told = getattr(config, "workerinput", {})
    takes_wide = takes_all or told.get("wide", config.getoption("--wide"))
    cases: Counter[str] = Counter()
    taken, left_out = [], []
    for item in items:
        sampled = item.get_closest_marker("sampled")
        test = item.nodeid.partition("[")[0]
        is_left_out = "wide" in item.keywords and not takes_wide
        if "slow" in item.keywords and not takes_slow:
            item.add_marker(skip)
        elif sampled is not None and not takes_all:
            cases[test] += 1
            is_left_out |= bool((cases[test] - 1) % sampled.args[0])
        (left_out if is_left_out else taken).append(item)
    # Deselected, not skipped: a skip costs as much as a small test, and there are thousands.
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = taken


def _mark_wide_tests(items: list[pytest.Item]) -> None:
    """By recorded time, and not by hand."""
    wide = recorded_times.wide(recorded_times.read(), [item.nodeid for item in items])
    for item in items:
        if item.nodeid in wide:
            item.add_marker(pytest.mark.wide)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests of lazy commands or virtual time in another process if this one has neither."""
    if pyfuncitem.get_closest_marker("lazy") is None or SCHEDULER != "threaded":
        return None
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env={**os.environ, "CUDASYNC_SOFTGPU_SCHEDULER": "fifo"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return True


@pytest.fixture(scope="module", autouse=True)
def what_others_left_is_not_looked_through_again() -> None:
    """Hundreds of tests collect garbage to show that they leave nothing behind.

    Objects that are alive before a file's first test stay alive. A search through all of them in
    each collection took a sixth of the whole run.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def nobody_is_told_of_what_others_left() -> Iterator[None]:
    """Clear the errors of all engines after a test.

    All tests share the process's engine. A test's reset may end ops that another test left in
    flight, which is no failure.
    """
    yield
    # Programs that only start others have not loaded this module.
    leaving = sys.modules.get("cudasync.engine.lifecycle.fork_and_exit")
    for engine in list(leaving.engines) if leaving is not None else ():
        engine.clear_errors()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print last, for each failed test that knows it, the line that runs its program again."""
    for report in terminalreporter.stats.get("failed", []):
        lines = re.findall(r"^[E|\s]*(replay: .*)$", report.longreprtext, re.MULTILINE)
        if lines:
            # Hypothesis reports the smallest example last.
            terminalreporter.write_line(lines[-1])
