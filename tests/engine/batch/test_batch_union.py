"""The accesses of a batch: the union of its steps in order, compared byte by byte with a model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cudasync.engine.batch.union import Union
from cudasync.engine.hazards.interval_map import Region
from cudasync.engine.hazards.variable import Var

BYTES = 12
VARIABLES = [Var("a"), Var("b")]
regions = st.lists(
    st.builds(lambda a, b: Region(min(a, b), max(a, b)), *[st.integers(0, BYTES)] * 2), max_size=2
).map(tuple)
variables = st.lists(st.sampled_from(VARIABLES), max_size=2).map(tuple)
steps = st.tuples(st.tuples(regions, regions, regions), variables, variables)


def bytes_of(*parts: tuple[Region, ...]) -> set[object]:
    return {byte for part in parts for region in part for byte in range(*region)}


@given(st.lists(steps, max_size=5))
def test_the_union_is_what_a_byte_at_a_time_says(steps):
    union, read, written = Union(), set(), set()
    for step in steps:
        union.add(step)
        (only_read, updated, overwritten), variables_read, variables_written = step
        read |= (bytes_of(only_read, updated) | set(variables_read)) - written
        written |= bytes_of(updated, overwritten) | set(variables_written)
    (only_read, updated, overwritten), variables_read, variables_written = union.accesses()
    assert bytes_of(only_read, updated) | set(variables_read) == read
    assert bytes_of(updated, overwritten) | set(variables_written) == written
    named = [*only_read, *updated, *overwritten]
    assert len(set(named)) == len(named)
    assert len(set(variables_written)) == len(variables_written)


def test_ranges_stay_as_they_are_unless_they_overlap_in_part():
    """An op that names a whole array finds its history at once. Parts of arrays need a search."""
    union, x, y = Union(), Region(0, 8), Region(8, 16)
    union.add((((y,), (), (x,)), (), ()))
    union.add((((x,), (y,), ()), (), ()))
    assert union.accesses() == (((), (y,), (x,)), (), ())
