"""The tower. Hooks that run tests marked `gpu` as the plugin's options say.

A seed is a parameter of the test, so each seed has its own fixtures, a name, and works with xdist.
The orders of an exploration are known only while it runs, so they share one set of fixtures.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import shlex
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from cudasync.driver.extensions.scheduler import scheduled
from cudasync.pytest_plugin.devices import place, tidy
from cudasync.pytest_plugin.failures import Failures
from cudasync.testing import check, explore
from cudasync.testing.exploration import order_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cudasync.pytest_plugin.options import Settings

_SEED = "_gpu_seed"
_KEPT = "cudasync_failures"
_REPLAY = "gpu replay"
_schedule = pytest.StashKey[str]()
_ended = pytest.StashKey[ExitStack]()


class Running:
    """The hooks, in this process: a whole run, or a worker or the controller of xdist."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._failures = Failures(config.rootpath / settings.folder)
        worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        # All workers must collect the same tests, also a worker that replaces another one.
        self._kept = self._failures.read() if worker is None else worker[_KEPT]
        is_head = worker is None and config.getoption("dist", "no") != "no"
        self._trouble = "" if is_head else place(settings.device)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_KEPT] = self._kept

    @pytest.hookimpl(trylast=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        test = metafunc.definition
        if not self._settings.seeds or test.get_closest_marker("gpu") is None:
            return
        names = [
            schedule
            for name, schedules in self._kept.items()
            for schedule in schedules
            # The test's other parameters are not known yet.
            if name.partition("[")[0] == test.nodeid and schedule.startswith("seed=")
        ]
        names += [f"seed={seed}" for seed in range(1, self._settings.seeds + 1)]
        names = list(dict.fromkeys(names))
        metafunc.fixturenames.append(_SEED)
        metafunc.parametrize(_SEED, names, ids=names)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item.get_closest_marker("gpu") is None:
            return
        if self._trouble:
            pytest.skip(self._trouble)
        schedule = _seed_of(item) or self._settings.replay
        if schedule:
            item.stash[_schedule] = schedule
        if schedule.startswith("seed="):
            gc.collect()  # So that no frees of earlier objects fall into the run.
            stack = item.stash[_ended] = ExitStack()
            if not stack.enter_context(scheduled(schedule)):
                pytest.skip(
                    "nothing here chooses the order of the commands, so seeds make no difference"
                )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        try:
            yield
        finally:
            if _ended in item.stash:
                item.stash[_ended].close()
            if item.get_closest_marker("gpu") is not None and not self._trouble:
                tidy()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        body = pyfuncitem.obj
        if pyfuncitem.get_closest_marker("gpu") is not None:
            pyfuncitem.obj = self._around(pyfuncitem)
        try:
            return (yield)
        finally:
            pyfuncitem.obj = body

    def _around(self, item: pytest.Function) -> Callable[..., object]:
        """The test's function, wrapped as the settings say."""
        settings, body = self._settings, item.obj
        explores = bool(settings.explore) or settings.replay.startswith("order=")
        if not (explores or settings.kinds):
            return body  # type: ignore[no-any-return]
        if inspect.iscoroutinefunction(body):
            pytest.fail(
                "asynchronous tests cannot be checked or explored: make the test a plain "
                "function: make the test a plain function",
                pytrace=False,
            )

        @functools.wraps(body)
        def run(**arguments: object) -> None:
            def program() -> object:
                return body(**arguments)

            if explores:
                self._explore(item, program)
            else:
                _check(program, settings.kinds)

        return run

    def _explore(self, item: pytest.Function, program: Callable[[], object]) -> None:
        test, replay = _test_of(item), self._settings.replay.removeprefix("order=")
        kept = [name for name in self._kept.get(test, []) if name.startswith("order=")]
        try:
            if replay:
                explore(program, order=replay)
                return
            for name in kept:
                explore(program, order=name.removeprefix("order="))
                self._failures.forget(test, name)
            found = explore(program, most=self._settings.explore)
            item.add_report_section("call", "exploration", str(found))
        except BaseException as error:
            order = order_of(error)
            if order:
                item.stash[_schedule] = f"order={order}"
            raise

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if item.get_closest_marker("gpu") is None:
            return report
        schedule = item.stash.get(_schedule, "")
        if report.failed:
            report.user_properties.append((_REPLAY, self._replay(item, schedule)))
            if schedule:
                self._failures.keep(_test_of(item), schedule)
        elif report.when == "call" and report.passed and schedule:
            self._failures.forget(_test_of(item), schedule)
        return report

    def _replay(self, item: pytest.Item, schedule: str) -> str:
        """The command that reproduces the failure."""
        settings = self._settings
        test: Any = _test_of(item)
        node = str(self._config.cwd_relative_nodeid(test))
        words = ["python", "-m", "pytest", node]
        if __package__ in (self._config.option.plugins or ()):
            words += ["-p", __package__]
        device = settings.device or os.environ.get("CUDASYNC_DEVICE", "")
        words += [f"--gpu-device={device}"] if device else []
        words += [f"--gpu-check={','.join(settings.kinds)}"] if settings.kinds else []
        words += [f"--gpu-replay={schedule}"] if schedule else []
        return "replay: " + shlex.join(words)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """At the end, one line for each test that failed."""
        reports = [
            report
            for outcome in ("failed", "error")
            for report in terminalreporter.stats.get(outcome, [])
        ]
        lines = [
            value
            for report in reports
            for name, value in getattr(report, "user_properties", ())
            if name == _REPLAY
        ]
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(line)


def _check(program: Callable[[], object], kinds: tuple[str, ...]) -> None:
    found = check(program, kinds=kinds)
    if found:
        pytest.fail("\n".join(map(str, found)), pytrace=False)


def _seed_of(item: pytest.Item) -> str:
    """The text "seed=N" of a test that runs under a seed, else ""."""
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get(_SEED, "")) if callspec is not None else ""


def _test_of(item: pytest.Item) -> str:
    """The test's name without its seed; the folder keeps schedules under this name."""
    seed = _seed_of(item)
    if not seed:
        return item.nodeid
    # The seed is the last parameter.
    name = item.nodeid.removesuffix("]").removesuffix(seed).rstrip("[-")
    return f"{name}]" if "[" in name.rpartition("::")[2] else name
