"""Planted bugs: each turns the property test or the trace check red. A checker that can not fail
proves nothing.

A bug is planted by replacing one decision of the engine; the properties are the ones of
test_engine_properties.py, with fixed seeds so that a red test stays red.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.oracle import Outcome, Runner, run_serially, violations
from helpers.programs import Program, programs
from hypothesis import HealthCheck, Phase, given, settings

import cudasync as cs
from cudasync.engine import dispatch, plan
from cudasync.engine.state import State
from cudasync.engine.timeline import Timeline

fixed = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Found(AssertionError):
    """The checker found what was planted."""


@pytest.fixture(autouse=True)
def _fresh_device():
    """A planted bug may make a kernel touch memory that is not there yet, which is fatal."""
    yield
    cs.Device(0).reset()


def result_differs(program: Program, outcome: Outcome, trace: list[cs.TraceEntry]) -> bool:
    return outcome != run_serially(program)


def order_differs(program: Program, outcome: Outcome, trace: list[cs.TraceEntry]) -> bool:
    return bool(violations(program, trace))


def search(
    differs: Callable[[Program, Outcome, list[cs.TraceEntry]], bool],
    with_failures: bool = False,
    examples: int = 300,
) -> None:
    """Run random programs until one of them shows a difference; raise Found for it."""
    found: list[Program] = []

    @settings(fixed, max_examples=examples)
    @given(programs(with_failures=with_failures))
    def check(program: Program) -> None:
        if found:
            return
        try:
            with cs.Engine(streams=3, trace=True) as engine:
                outcome = Runner(program, engine).run()
                trace = engine.trace()
        except cs.CudasyncError:
            found.append(program)
        else:
            if differs(program, outcome, trace):
                found.append(program)

    check()
    if found:
        raise Found(found[0])


def test_the_engine_as_it_is_passes_the_same_search():
    search(lambda *seen: result_differs(*seen) or order_differs(*seen), examples=60)


def test_a_dropped_event_wait_is_found(monkeypatch):
    monkeypatch.setattr(Timeline, "is_behind", lambda self, timeline, seq: True)
    with pytest.raises(Found):
        search(order_differs)


def test_a_dropped_read_is_found(monkeypatch):
    """Without readers no write waits for an earlier read: WAR."""
    monkeypatch.setattr(State, "add_reader", lambda self, op: None)
    with pytest.raises(Found):
        search(order_differs)


def test_a_dropped_write_is_found(monkeypatch):
    """Without writers nothing waits for a write: RAW and WAW."""
    monkeypatch.setattr(plan, "_overwrite", lambda resource, op: None)
    with pytest.raises(Found):
        search(lambda *seen: result_differs(*seen) or order_differs(*seen))


def test_a_dropped_poison_is_found(monkeypatch):
    monkeypatch.setattr(dispatch, "poison", lambda op: None)
    with pytest.raises(Found):
        search(result_differs, with_failures=True)
