"""Fixtures and profiles for every test.

The device under test is whatever cudasync chooses: the software GPU here, a real one with
CUDASYNC_DEVICE=cuda. No test may ask which it is, except through `Device.is_software` where
a poisoned byte or a deterministic order is the very thing shown.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from helpers.lowering.kept_code import IS_INSIDE_A_TEST, keep_nothing, kept_in
from hypothesis import HealthCheck, Phase, settings

# The software GPU has as many devices as one asks for; programs of the tests use three.
os.environ.setdefault("CUDASYNC_SOFTGPU_DEVICES", "3")
SCHEDULER = os.environ.get("CUDASYNC_SOFTGPU_SCHEDULER", "fifo")
# Nothing is found that another run has compiled, and nothing kept in the user's folders.
keep_nothing()

settings.register_profile("plain", deadline=None, max_examples=15)
settings.register_profile("dev", deadline=None, max_examples=40)
# For processes that tests start: a look, and no search for a smaller example.
settings.register_profile(
    "look", deadline=None, max_examples=5, phases=[Phase.generate], database=None
)
# Until the first that fails, which comes soon.
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


# Files that take long come first, so that one of two processes is not left with them at the end.
LONGEST = {
    "test_models.py",
    "test_reductions.py",
    "test_engine_schedules.py",
    "test_plugin.py",
    "test_run.py",
    "test_endless.py",
    "test_access_properties.py",
}


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it puts in the background with Ctrl-C ignored, and so would be every
    # program that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A plain run, which names no file, is done by two processes, a file at a time.

    Named files run as ever, so `-s`, `--pdb` and one's own `-n` do what they say.
    """
    option = config.option
    asks_for_all = config.args_source is not pytest.Config.ArgsSource.ARGS
    one_process = option.capture == "no" or option.usepdb or option.collectonly
    is_one_of_two = hasattr(config, "workerinput")
    can = config.pluginmanager.hasplugin("xdist") and (os.cpu_count() or 1) > 1
    if asks_for_all and can and not (one_process or is_one_of_two) and option.numprocesses is None:
        option.numprocesses = 2
        option.dist = "loadfile"
        # In the order of the items: see `LONGEST`.
        option.loadscopereorder = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run the tests marked slow, too")
    parser.addoption("--all-cases", action="store_true", help="run all cases of sampled tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The sort is stable: else the order stays.
    items.sort(key=lambda item: item.path.name not in LONGEST)
    if config.getoption("--run-slow"):
        return
    skip = pytest.mark.skip(reason="needs --run-slow")
    left_out = pytest.mark.skip(reason="needs --all-cases")
    takes_all = config.getoption("--all-cases")
    cases: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if "slow" in item.keywords:
            item.add_marker(skip)
        elif sampled is not None and not takes_all:
            test = item.nodeid.partition("[")[0]
            if cases[test] % sampled.args[0]:
                item.add_marker(left_out)
            cases[test] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run what shows lazy commands, or virtual time, where there are such: in another process."""
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


@pytest.fixture(scope="session", autouse=True)
def a_run_compiles_a_kernel_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Also for the processes that its tests start, and where a process has forgotten the kernel."""
    if IS_INSIDE_A_TEST:
        yield
    else:
        with kept_in(tmp_path_factory.mktemp("code")):
            yield


@pytest.fixture(scope="module", autouse=True)
def what_others_left_is_not_looked_through_again() -> None:
    """Hundreds of tests collect garbage to show that nothing is left behind: of their own.

    What is alive before a file's first test stays anyhow, and going through all of it for each of
    them took a sixth of the whole run.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def nobody_is_told_of_what_others_left() -> Iterator[None]:
    """The engine of the process is every test's: ops that a test left in flight may be ended by
    the reset of another one, which is nobody's failure."""
    yield
    # Programs that only start others have not loaded it.
    leaving = sys.modules.get("cudasync.engine.lifecycle.fork_and_exit")
    for engine in list(leaving.engines) if leaving is not None else ():
        engine.clear_errors()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """At the very end, one line for each red test that knows how to run its program again."""
    for report in terminalreporter.stats.get("failed", []):
        lines = re.findall(r"^[E|\s]*(replay: .*)$", report.longreprtext, re.MULTILINE)
        if lines:
            # Hypothesis tells of the smallest example last.
            terminalreporter.write_line(lines[-1])
