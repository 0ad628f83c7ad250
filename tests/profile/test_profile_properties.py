"""Random programs: the profile has each op once, and its dependencies explain every start.

A second definition derives the dependencies of ops from the accesses alone, for each pair of ops.
The profile's records must order the same pairs. Then bugs are planted in the records.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.engine_programs.judge import replay_line, reset_devices
from helpers.engine_programs.runner import Runner, open_engine
from helpers.engine_programs.strategies import programs, settings
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.engine import observation
from cudasync.engine.hazards.interval_map import Region
from cudasync.profile.analysis import axes, places, rows, violations
from cudasync.profile.record import WALL, Record
from cudasync.profile.wait_reasons import blockers, reason_of


def profiled(program, setting) -> tuple[cs.Profile, dict[str, int], int]:
    """A run under a profile: the profile, the numbers of the ops, and how many ops were pushed."""
    with open_engine(setting) as engine:
        runner = Runner(program, engine, holds=setting.holds)
        before = all_pushes()
        with cs.profile() as profile:
            runner.push_all()
            runner.collect()
            engine.clear_errors()
        pushed = all_pushes() - before
        return profile, {id_: op.number for id_, op in runner.ops.items()}, pushed


def all_pushes() -> int:
    """The number of ops so far, of all engines.

    Memory of other engines may be freed meanwhile. A device op's function may push to the engine
    that is current where the op is issued.
    """
    return sum(engine.statistics().ops for engine in observation.every_engine())


def wrong(profile: cs.Profile, numbers: dict[str, int], pushed: int) -> list[str]:
    """The impossible statements of a profile."""
    records = profile.records
    found = violations(records) + unordered(records)
    seen = [record.number for record in records]
    if len(set(seen)) < len(seen):
        found.append("an op appears twice")
    if pushed != len(seen):
        found.append(f"{pushed} ops were pushed, {len(seen)} are in the profile")
    found += [f"step {id_} is missing" for id_, number in numbers.items() if number not in seen]
    for axis in axes(records):
        if axis.unbounded_us > axis.elapsed_us:
            found.append(f"a bound of {axis.unbounded_us} above {axis.elapsed_us} us")
        blocked = blockers(records)
        for record in records:
            reason = reason_of(record, blocked)
            on = reason.blocker if reason.dependency is None else reason.dependency.on
            is_here = record.clock == axis.clock != WALL and on is not None
            if is_here and on.clock == axis.clock and reason.waited_us > axis.elapsed_us + 1:
                found.append(f"a wait of {reason.waited_us} in {axis.elapsed_us} us")
        if axis.critical_us > axis.unbounded_us + 1:
            found.append(f"with no end of workers {axis.unbounded_us} of {axis.critical_us} us")
        if axis.critical_us > axis.elapsed_us + 1:
            found.append(f"the critical path takes {axis.critical_us} of {axis.elapsed_us} us")
        busy = sum(row.total_us for row in rows(records) if row.clock == axis.clock)
        if abs(busy - axis.busy_us) > 1:
            found.append("the table's times are not the busy time")
    for place in places(records):
        if abs(sum(place.reasons.values()) - place.idle_us) > 1:
            found.append(f"the reasons of {place.name} are not all its idle time")
    for record in records:
        if [reason for reason in profile.why(record) if not str(reason)]:
            found.append("a reason without words")
    return found


def unordered(records: list[Record]) -> list[str]:
    """Pairs of conflicting ops that the records do not order."""
    after: dict[Record, set[Record]] = {}
    for record in records:
        mine = after[record] = set()
        for dependency in record.before:
            mine |= {dependency.on} | after[dependency.on]
    return [
        f"{second.name} #{second.number} is not ordered behind {first.name} #{first.number}"
        for index, second in enumerate(records)
        for first in records[:index]
        if "allocate" not in (first.kind, second.kind)
        and conflicts(first, second)
        and first not in after[second]
    ]


def conflicts(first: Record, second: Record) -> bool:
    pairs = [(a, b) for a in first.writes for b in (*second.reads, *second.writes)]
    pairs += [(a, b) for a in first.reads for b in second.writes]
    return any(meet(a, b) for a, b in pairs)


def meet(a, b) -> bool:
    if isinstance(a, Region) and isinstance(b, Region):
        return a.start < b.end and b.start < a.end
    return a is b


def share() -> hypothesis_settings:
    return hypothesis_settings(max_examples=max(8, hypothesis_settings.default.max_examples // 2))


@share()
@given(programs(fails=True, max_steps=16), settings(), st.booleans())
def test_dependencies_explain_every_start_and_each_op_is_there_once(program, setting, serial):
    if serial:
        setting = replace(setting, serial=1, limit=0)
    found = wrong(*profiled(program, setting))
    if found:
        reset_devices()
    assert not found, "\n".join([*found, replay_line(program, setting)])


@share()
@given(programs(threads=3, max_steps=20), settings())
def test_pushes_of_several_threads_are_all_seen(program, setting):
    found = wrong(*profiled(program, setting))
    assert not found, "\n".join([*found, replay_line(program, setting)])


def a_chain() -> list[Record]:
    """Three ops in a row. The second op takes long enough to tell its times apart."""
    with cs.Engine(workers=2) as engine, cs.profile() as profile:
        first, second = cs.Var("first"), cs.Var("second")
        engine.push(lambda: None, writes=first, name="a")
        engine.push(lambda: sum(range(20_000)), reads=first, writes=second, name="b")
        engine.push(lambda: None, reads=second, name="c")
    return profile.records


def test_a_dropped_dependency_is_found():
    records = a_chain()
    assert not unordered(records)
    records[2].before.clear()
    assert unordered(records) == [
        f"c #{records[2].number} is not ordered behind b #{records[1].number}"
    ]


@pytest.mark.parametrize("early", [1, 2])
def test_a_clock_that_is_off_is_found(early):
    records = a_chain()
    assert not violations(records)
    records[early].start_us -= 1e6
    records[early].end_us -= 1e6
    assert any("before" in each for each in violations(records))
    assert records[early].clock == WALL
