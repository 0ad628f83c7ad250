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

import pytest
from hypothesis import HealthCheck, Phase, settings

# The software GPU has as many devices as one asks for; programs of the tests use three.
os.environ.setdefault("CUDASYNC_SOFTGPU_DEVICES", "3")
SCHEDULER = os.environ.get("CUDASYNC_SOFTGPU_SCHEDULER", "fifo")
# Tests compile what they run, and keep nothing in the user's folders.
os.environ["CUDASYNC_SOFTGPU_CACHE"] = "0"

settings.register_profile("dev", deadline=None, max_examples=40)
# For processes that tests start: a look, and no search for a smaller example.
settings.register_profile(
    "look", deadline=None, max_examples=20, phases=[Phase.generate], database=None
)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=200,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it puts in the background with Ctrl-C ignored, and so would be every
    # program that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    skip = pytest.mark.skip(reason="needs --run-slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


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


@pytest.fixture(scope="module", autouse=True)
def what_others_left_is_not_looked_through_again() -> None:
    """Hundreds of tests collect garbage to show that nothing is left behind: of their own.

    What is alive before a file's first test stays anyhow, and going through all of it for each of
    them took a sixth of the whole run.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """At the very end, one line for each red test that knows how to run its program again."""
    for report in terminalreporter.stats.get("failed", []):
        lines = re.findall(r"^[E|\s]*(replay: .*)$", report.longreprtext, re.MULTILINE)
        if lines:
            # Hypothesis tells of the smallest example last.
            terminalreporter.write_line(lines[-1])
