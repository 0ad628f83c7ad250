"""Unwritten bytes as ranges agree with a set of bytes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cudasync.softgpu.core.checks.unwritten import Unwritten
from cudasync.softgpu.interface.byte_ranges import ByteRanges

RANGES = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted).map(tuple)


@given(st.lists(st.tuples(st.booleans(), RANGES), max_size=12), RANGES)
# No byte of a range is asked for.
@example([(True, (0, 2))], (1, 1))
def test_ranges_hold_the_bytes_of_a_set(changes, asked):
    ranges, model = Unwritten(ByteRanges.of([(10, 30)])), set(range(10, 30))
    for adds, (start, end) in changes:
        if adds:
            ranges.add(ByteRanges.of([(start, end)]))
            model |= set(range(start, end))
        else:
            ranges.take_away(ByteRanges.of([(start, end)]))
            model -= set(range(start, end))
        found = list(ranges.within(ByteRanges.of([asked])))
        bytes_found = [byte for low, high in found for byte in range(low, high)]
        assert bytes_found == sorted(model & set(range(*asked)))
        assert all(low < high for low, high in found)
        assert bool(ranges) is bool(model)
