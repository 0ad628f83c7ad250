"""The central property with replay: loops give the memory, results and errors of a serial run."""

from __future__ import annotations

from dataclasses import replace

from helpers.engine_programs.judge import check
from helpers.engine_programs.loops import eager_replay, looping_programs
from helpers.engine_programs.strategies import settings
from hypothesis import given
from hypothesis import strategies as st

from cudasync import testing

# How many launches of a program fit into a run: all of the unit, or less.
lengths = st.sampled_from([None, 1, 2, 4])


@given(looping_programs(), settings(), lengths)
def test_loops_give_the_serial_result(program, setting, most):
    with eager_replay(most):
        check(program, replace(setting, limit=0, replay=1))


@given(looping_programs(fails=True), settings(), lengths)
def test_failures_in_loops_poison_exactly_what_they_would_serially(program, setting, most):
    with eager_replay(most):
        check(program, replace(setting, limit=0, replay=1))


@given(looping_programs(fails=True, threads=3), settings(), lengths)
def test_loops_of_three_threads_have_one_total_order(program, setting, most):
    with eager_replay(most):
        check(program, replace(setting, limit=0, replay=1))


@given(looping_programs(), settings(), lengths)
def test_nothing_in_a_loop_lacks_an_order(program, setting, most):
    """The checker of races sees each launch of a graph, and each access of Python."""

    def run():
        with eager_replay(most):
            check(program, replace(setting, limit=0, replay=1))

    assert testing.check(run, kinds=["race"]) == []
