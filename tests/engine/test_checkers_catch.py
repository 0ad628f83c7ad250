"""Planted bugs turn the properties of test_engine_properties.py red.

A checker that cannot fail proves nothing. The search has fixed seeds, so that a red test stays red.
"""

from __future__ import annotations

import pytest
from helpers.engine_programs.device_faults import differences_after_fault
from helpers.engine_programs.fault_programs import computing_faults, crossing_programs
from helpers.engine_programs.judge import differences
from helpers.engine_programs.places import View
from helpers.engine_programs.planted_bugs import FAULTS, NAMES, OPERATORS, SHOWN_BY, plant
from helpers.engine_programs.program_text import from_text
from helpers.engine_programs.runner import Runner
from helpers.engine_programs.state_machine import Agreement
from helpers.engine_programs.steps import Copy, Program, Push, Setting, Total, Wild
from helpers.engine_programs.strategies import mixed_programs, programs, settings
from helpers.repository.searches import begins_with_known
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test
from hypothesis.strategies import SearchStrategy

import cudasync as cs

# A planted bug may let a kernel follow a wrong pointer.
pytestmark = [pytest.mark.sampled(3), pytest.mark.loses_device]

CROSSING, COMPUTING = crossing_programs(), computing_faults()

# The search asks for differences after so many programs.
CHUNK = 20
TRIES = 6
fixed = hypothesis_settings(
    max_examples=CHUNK,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def known(bug: str) -> list[str]:
    """In a plain run, the differences of the program that is known to show this bug."""
    if not begins_with_known() or bug not in SHOWN_BY:
        return []
    program, setting = from_text(SHOWN_BY[bug])
    # Some bugs show in some runs only. With a trace most launches are planned one by one.
    runs = (differences(program, setting, trace=number % 2 == 1) for number in range(TRIES))
    return next(filter(None, runs), [])


def search(examples: int) -> list[str]:
    """Run random programs until one of them differs; returns the differences."""
    for chunk in range(examples // CHUNK):
        # With one thread and no trace, most launches are planned and issued at once.
        found = search_chunk(chunk, threads=1 + chunk % 2, trace=chunk % 2 == 1)
        if found:
            return found
    return []


def search_chunk(chunk: int, *, threads: int, trace: bool) -> list[str]:
    found: list[str] = []

    @seed(chunk)
    @fixed
    @given(programs(fails=True, threads=threads), settings())
    def look(program: Program, setting: Setting) -> None:
        if not found:
            found.extend(differences(program, setting, trace=trace))

    look()
    return found


def search_operators(examples: int, *, on_cpu: bool = False) -> list[str]:
    """Run random programs of operators until one of them differs."""
    for chunk in range(examples // CHUNK):
        found = search_operators_chunk(chunk, on_cpu=on_cpu)
        if found:
            return found
    return []


def search_operators_chunk(chunk: int, *, on_cpu: bool) -> list[str]:
    found: list[str] = []

    @seed(chunk)
    @fixed
    @given(mixed_programs(on_cpu=on_cpu), settings())
    def look(program: Program, setting: Setting) -> None:
        if not found:
            found.extend(differences(program, setting))

    look()
    return found


# A kernel causes a fault on device 1, and then device 0 copies from there.
SHORTEST = Program(
    (0, 1),
    3,
    1,
    (
        Push(Wild(View("d", 1, 1, 8, 1)), 0, 0, False),
        Push(Copy(View("d", 0, 0, 24, 1), View("d", 1, 0, 24, 1)), 0, 0, False),
    ),
)


def search_faults(examples: int, faulting: SearchStrategy[Program] = CROSSING) -> list[str]:
    """Run programs that lose a device until one is harmed: the shortest program, then random ones.

    Hypothesis draws constants from our code, so a change of any file changes its programs.
    """
    if faulting is CROSSING:
        found = differences_after_fault(SHORTEST, Setting(8, 3, 2, 0, 0, 0))
        if found:
            return found
    for chunk in range(examples // CHUNK):
        found = search_faults_chunk(chunk, faulting)
        if found:
            return found
    return []


def search_faults_chunk(chunk: int, faulting: SearchStrategy[Program]) -> list[str]:
    found: list[str] = []

    @seed(chunk)
    @fixed
    @given(faulting, settings())
    def look(program: Program, setting: Setting) -> None:
        if not found:
            found.extend(differences_after_fault(program, setting))

    look()
    return found


def test_the_engine_as_it_is_passes_the_same_search(monkeypatch):
    for text in SHOWN_BY.values():
        assert differences(*from_text(text)) == differences(*from_text(text), trace=True) == []
    # Its beginning, in a plain run, whose properties run other programs.
    few = hypothesis_settings(
        fixed, max_examples=min(CHUNK, hypothesis_settings.default.max_examples)
    )
    monkeypatch.setitem(globals(), "fixed", few)
    assert search(60) == []
    assert search_faults(20) == search_faults(20, COMPUTING) == []
    assert search_operators(20) == search_operators(20, on_cpu=True) == []


@pytest.fixture(autouse=True)
def _fresh_devices():
    """Reset the devices: a planted bug may let a kernel use unallocated memory, a fatal fault."""
    yield
    for ordinal in range(cs.device_count()):
        cs.Device(ordinal).reset()


@pytest.mark.parametrize("bug", ["poison is dropped", "readers are dropped", "an op runs twice"])
def test_the_machine_that_compares_engines_finds_it_too(bug, monkeypatch):
    plant(bug, monkeypatch.setattr)
    steps = hypothesis_settings(fixed, max_examples=200, stateful_step_count=30, derandomize=True)
    with pytest.raises((AssertionError, Flaky, cs.CudasyncError)):
        run_state_machine_as_test(Agreement, settings=steps)


@pytest.mark.parametrize("bug", NAMES)
def test_a_planted_bug_is_found(bug, monkeypatch):
    plant(bug, monkeypatch.setattr)
    assert known(bug) or search(3000)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("bug", OPERATORS)
def test_a_bug_of_operators_is_found(bug, monkeypatch):
    plant(bug, monkeypatch.setattr)
    assert known(bug) or search_operators(2000, on_cpu="on the CPU" in bug)


@pytest.mark.parametrize("bug", FAULTS)
def test_a_bug_that_needs_a_lost_device_is_found(bug, monkeypatch):
    plant(bug, monkeypatch.setattr)
    assert search_faults(600)


# Their step is poisoned by its inputs. A reduction forgets the poison, a copy does not carry it
# over.
LOSING = ("a step forgets what it reads", "a fault stays on its device")


@pytest.mark.parametrize("bug", LOSING)
def test_a_bug_of_operators_beside_a_lost_device_is_found(bug, monkeypatch):
    plant(bug, monkeypatch.setattr)
    assert search_faults(600, COMPUTING)


def test_an_operator_that_another_device_refuses_is_found(monkeypatch):
    real = Runner._op

    def planted(self, id_, push):
        if self.loses_device and isinstance(push.step, Total):
            raise cs.CudaError(700, "CUDA_ERROR_ILLEGAL_ADDRESS", call="planted")
        return real(self, id_, push)

    monkeypatch.setattr(Runner, "_op", planted)
    assert any("was refused" in each for each in search_faults(20, COMPUTING))
