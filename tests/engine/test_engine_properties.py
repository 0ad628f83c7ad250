"""The central property: any program on the engine gives memory, results and errors of a serial run.

A model in NumPy defines "serial". If several threads or ops push, `Op.number` gives the order in
which the pushes took effect, and the model runs in that order.

HYPOTHESIS_PROFILE selects the number of examples: plain, dev, ci, long. A red test ends with a line
that runs its program again.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.engine_programs.device_faults import differences_after_fault
from helpers.engine_programs.fault_programs import (
    computing_faults,
    crossing_programs,
    faulting_programs,
)
from helpers.engine_programs.judge import check, replay_line
from helpers.engine_programs.program_text import from_text
from helpers.engine_programs.steps import (
    LENGTH,
    Fetch,
    Nest,
    Program,
    Push,
    Setting,
    Token,
    Total,
    View,
    Wild,
)
from helpers.engine_programs.strategies import mixed_programs, programs, settings
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

LIMITS = st.integers(1, 6)


def share(part: float) -> hypothesis_settings:
    """This part of the profile's number of examples; other properties share the rest."""
    usual = hypothesis_settings.default.max_examples
    return hypothesis_settings(max_examples=max(10, int(usual * part)))


# The central property gets more examples than any other: a thousand in CI.
@share({"look": 1, "plain": 2, "dev": 2}.get(hypothesis_settings.get_current_profile_name(), 5))
@given(programs(), settings())
def test_any_program_gives_the_serial_result(program, setting):
    check(program, setting)


@given(programs(fails=True), settings())
def test_failures_poison_exactly_what_they_would_serially(program, setting):
    check(program, setting)


@share(0.6)
@given(mixed_programs(fails=True), settings())
def test_any_program_of_operators_on_devices_and_the_cpu_gives_the_serial_result(program, setting):
    check(program, setting)


@given(programs(threads=2), settings())
def test_two_threads_push_in_one_total_order(program, setting):
    check(program, setting)


@given(programs(threads=4, max_steps=32, fails=True), settings())
def test_four_threads_push_in_one_total_order_and_failures_follow_it(program, setting):
    check(program, setting)


# Neither side of the copy is contiguous.
@example(*from_text("d=0 h=1 t=1: copy h0[2:11:4] d0[2:11:4]"))
@given(programs(max_steps=10, threads=2), settings())
def test_no_two_steps_overlap_in_time_where_one_writes_what_the_other_uses(program, setting):
    check(program, setting, trace=True)


@share(0.5)
@given(programs(fails=True, threads=3), settings(LIMITS))
def test_back_pressure_changes_nothing_but_the_pace(program, setting):
    check(program, setting)


@share(0.5)
@given(st.one_of(programs(fails=True), mixed_programs(fails=True)))
def test_the_serial_engine_does_what_the_model_says(program):
    """Two definitions of "serial" agree: the engine's own code, and a model without that code."""
    check(program, Setting(serial=1))


_ALL = View("d", 0, 0, LENGTH)
# The operator inside an op is refused: its device is lost by then.
REFUSED_INSIDE = Program(
    (0,),
    0,
    1,
    (
        Push(Wild(_ALL)),
        Push(Fetch(_ALL)),
        Push(Nest(Token(0), (Push(Total(_ALL, _ALL)),))),
    ),
)


@pytest.mark.loses_device
@share(0.5)
@example(REFUSED_INSIDE, Setting())
@given(faulting_programs(max_steps=20, threads=3), settings())
def test_a_lost_device_harms_nothing_that_has_nothing_to_do_with_it(program, setting):
    found = differences_after_fault(program, setting)
    assert not found, "\n".join([*found, replay_line(program, setting)])


@pytest.mark.loses_device
@given(crossing_programs(), settings(), st.booleans())
def test_a_fault_crosses_devices_along_data_and_only_so(program, setting, is_serial):
    setting = replace(setting, limit=0, serial=1) if is_serial else setting
    found = differences_after_fault(program, setting)
    assert not found, "\n".join([*found, replay_line(program, setting)])


@pytest.mark.loses_device
@share(0.5)
@given(computing_faults(), settings(), st.booleans())
def test_a_lost_device_harms_no_reduction_or_product_elsewhere(program, setting, is_serial):
    setting = replace(setting, limit=0, serial=1) if is_serial else setting
    found = differences_after_fault(program, setting)
    assert not found, "\n".join([*found, replay_line(program, setting)])


@pytest.mark.slow
@given(programs(max_steps=80, fails=True, threads=4), settings())
def test_long_programs_give_the_serial_result(program, setting):
    check(program, setting, trace=True)


@pytest.mark.slow
@hypothesis_settings(max_examples=5_000)
@given(programs(fails=True, threads=3), settings())
def test_very_many_programs_give_the_serial_result(program, setting):
    check(program, setting)
