"""The serial engine, an engine and a graph agree on each call of one state machine."""

from __future__ import annotations

import pytest
from helpers.graphs.state_machine import GraphAgreement
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

import cudasync as cs
from cudasync.engine.hazards.damage import Damage
from cudasync.graph import retargeting
from cudasync.graph.executable import Executable

TestGraphAgreement = GraphAgreement.TestCase
TestGraphAgreement.settings = settings(
    max_examples=max(8, settings.default.max_examples // 3), stateful_step_count=25
)


@pytest.fixture(autouse=True)
def _fresh_devices():
    """Reset the devices: a planted bug may let a kernel use unallocated memory, a fatal fault."""
    yield
    for ordinal in range(cs.device_count()):
        cs.Device(ordinal).reset()


PLANTED = {
    "an update is lost": (Executable, "update", lambda self, **values: None),
    "nothing was wrong before": (Damage, "before", lambda origins: Damage()),
    "nodes stay on the slots": (retargeting, "_aimed", lambda node, aim: node),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug, monkeypatch):
    where, name, wrong = PLANTED[bug]
    monkeypatch.setattr(where, name, wrong)
    steps = settings(
        max_examples=300, stateful_step_count=15, derandomize=True, database=None, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )  # fmt: skip
    with pytest.raises((AssertionError, Flaky, cs.CudasyncError)):
        run_state_machine_as_test(GraphAgreement, settings=steps)
