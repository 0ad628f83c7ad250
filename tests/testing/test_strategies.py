"""The public strategies: their programs, and a check against the serial engine that finds bugs."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers.engine_programs.judge import reset_devices
from helpers.engine_programs.planted_bugs import plant
from helpers.repository.checkout import ROOT
from helpers.repository.readme_blocks import blocks
from hypothesis import HealthCheck, Phase, find, given, seed, settings

import cudasync as cs
from cudasync.testing import arrays, check_against_serial, dags, launches, programs

once = settings(
    max_examples=200,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@given(programs())
def test_any_program_gives_the_serial_result(program):
    check_against_serial(program)


@pytest.fixture
def whole_devices():
    yield
    reset_devices()


@pytest.mark.usefixtures("whole_devices")
@pytest.mark.parametrize("name", ["writers are dropped", "an operator forgets what it reads"])
def test_an_engine_that_forgets_is_found(name, monkeypatch):
    made = []

    @seed(1)
    @once
    @given(programs())
    def collect(program):
        made.append(program)

    collect()
    plant(name, monkeypatch.setattr)
    with pytest.raises(AssertionError, match="serial engine") as raised:  # noqa: PT012
        for program in made:
            check_against_serial(program)
    assert "ProgramStep(" in str(raised.value)


def test_a_program_of_ones_own_is_held_to_what_it_returns():
    seen = []

    def program():
        x = cs.zeros(4, np.float32)
        x += 1
        seen.append(cs.engine().mode)
        return [x.numpy(), "same"]

    check_against_serial(program)
    assert seen[0] == "serial" != seen[1]
    with pytest.raises(AssertionError, match="differs from the serial"):
        check_against_serial(lambda: seen.append(0) or len(seen))


def test_programs_have_every_kind_of_step_and_hazards():
    kinds = {"device", "host", "up", "down"}
    found = find(programs(), lambda p: {s.kind for s in p.steps} == kinds, settings=once)
    assert len(found.steps) >= 4


@given(dags())
def test_a_dag_names_earlier_nodes_alone(dag):
    for node, before in enumerate(dag):
        assert list(before) == sorted(set(before))
        assert all(0 <= each < node for each in before)


@given(launches())
def test_a_launch_has_a_thread_for_each_element_and_no_block_too_many(launch):
    assert 1 <= launch.block <= 1024
    assert (launch.grid - 1) * launch.block < launch.count <= launch.grid * launch.block


@given(arrays(np.int32))
def test_an_array_comes_back_from_the_device_as_it_was(data):
    np.testing.assert_array_equal(cs.array(data).numpy(), data)


@pytest.mark.parametrize(
    "wanted", [lambda a: a.ndim == 0, lambda a: not a.size, lambda a: a.strides[:1] < (0,)]
)
def test_arrays_are_of_awkward_shapes(wanted):
    assert wanted(find(arrays(), wanted, settings=once))


def test_without_hypothesis_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis.strategies", None)
    for make in (programs, dags, launches, arrays):
        with pytest.raises(cs.CudasyncError, match="pip install hypothesis"):
            make()


def test_the_example_of_the_rooms_readme_runs():
    (text,) = [b.text for b in blocks(ROOT / "cudasync/testing/README.md") if "@given" in b.text]
    names = {}
    exec(compile(text, "<the example>", "exec"), names)
    names["test_any_program_gives_the_serial_result"]()
