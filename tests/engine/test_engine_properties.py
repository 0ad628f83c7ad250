"""The centre: any program on the engine gives the memory, results and errors of serial execution.

Run with more examples by HYPOTHESIS_PROFILE=long.
"""

from __future__ import annotations

import pytest
from helpers.oracle import Runner, run_serially, violations
from helpers.programs import programs
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs


@given(programs(), st.integers(1, 4), st.integers(1, 3))
def test_any_program_gives_the_serial_result(program, streams, workers):
    expected = run_serially(program)
    with cs.Engine(streams=streams, workers=workers) as engine:
        assert Runner(program, engine).run() == expected


@given(programs(with_failures=True), st.integers(1, 4))
def test_failures_poison_exactly_what_they_would_serially(program, streams):
    expected = run_serially(program)
    with cs.Engine(streams=streams) as engine:
        assert Runner(program, engine).run() == expected


@given(programs(max_steps=10), st.integers(1, 4))
def test_no_two_steps_overlap_in_time_where_one_writes_what_the_other_uses(program, streams):
    with cs.Engine(streams=streams, trace=True) as engine:
        Runner(program, engine).run()
        trace = engine.trace()
    names = [entry.name for entry in trace if entry.name.startswith("step ")]
    assert len(names) == len(set(names)), "an op ran twice"
    assert violations(program, trace) == []


@given(programs(), st.integers(1, 5))
def test_back_pressure_changes_nothing_but_the_pace(program, limit):
    expected = run_serially(program)
    with cs.Engine(max_in_flight=limit) as engine:
        assert Runner(program, engine).run() == expected


@pytest.mark.slow
@given(programs(max_steps=80, with_failures=True), st.integers(1, 8), st.integers(1, 4))
def test_long_programs_give_the_serial_result(program, streams, workers):
    expected = run_serially(program)
    with cs.Engine(streams=streams, workers=workers) as engine:
        assert Runner(program, engine).run() == expected
