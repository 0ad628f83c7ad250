"""Splits of a device's multiprocessors follow the manual, and give no multiprocessor away twice."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from cudasync.softgpu.core.driver_types.compute_capability import NAMES, named
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_RESOURCE_CONFIGURATION,
    INVALID_VALUE,
    DriverFailure,
)
from cudasync.softgpu.core.green_contexts.resources import (
    Multiprocessors,
    all_multiprocessors,
    granularity_of,
)
from cudasync.softgpu.core.green_contexts.splits import BACKFILL, Group, split, split_by_count


def device(capability="8.0", count=24):
    return Multiprocessors(0, (1 << count) - 1, granularity_of(named(capability)))


def masks(parts, rest):
    return [part.mask for part in parts] + ([] if rest is None else [rest.mask])


def is_divided(whole, parts, rest):
    """Whether the parts and the rest make up the whole, with no multiprocessor in two of them."""
    found = masks(parts, rest)
    return sum(found) == whole.mask and sum(m.bit_count() for m in found) == whole.count


@pytest.mark.parametrize(
    ("capability", "least", "size"),
    [("7.5", 1, 2), ("7.5", 3, 4), ("8.0", 1, 4), ("8.0", 5, 6), ("9.0", 1, 8), ("12.0", 9, 16)],
)
def test_a_count_is_rounded_up_to_what_the_architecture_can_do(capability, least, size):
    whole = device(capability)
    parts, rest = split_by_count(whole, 0, least)
    assert {part.count for part in parts} == {size}
    assert len(parts) == 24 // size
    assert is_divided(whole, parts, rest)


def test_two_is_enough_without_coscheduling():
    parts, _ = split_by_count(device("9.0"), 1, 1)
    assert [part.count for part in parts] == [2] * 12
    assert parts[0].granularity.alignment == 2


def test_fewer_groups_than_there_could_be_leave_a_rest():
    parts, rest = split_by_count(device(), 0, 4, most_groups=2)
    assert [part.count for part in parts] == [4, 4]
    assert rest is not None
    assert rest.count == 16


def test_parts_are_not_split_again_by_count():
    parts, rest = split_by_count(device(), 0, 8, most_groups=1)
    for piece in (*parts, rest):
        with pytest.raises(DriverFailure) as refused:
            split_by_count(piece, 0, 4)
        assert refused.value.code == INVALID_RESOURCE_CONFIGURATION


@pytest.mark.parametrize(("flags", "least"), [(4, 1), (0, 25), (2, 1)])
def test_what_no_split_by_count_can_be(flags, least):
    """Unknown flags, too many multiprocessors, and clusters where the architecture has none."""
    with pytest.raises(DriverFailure) as refused:
        split_by_count(device(), flags, least)
    assert refused.value.code == INVALID_VALUE


def test_each_group_is_what_it_was_told_to_be_and_zero_is_what_is_left():
    whole = device("9.0", 22)
    parts, rest = split(whole, [Group(4, 2), Group(8), Group(0)], is_real=True)
    assert [part.count for part in parts] == [4, 8, 8]
    assert rest is not None
    assert rest.count == 2
    assert is_divided(whole, parts, rest)


def test_backfill_unlocks_a_count_that_is_no_multiple():
    whole = device("9.0")
    with pytest.raises(DriverFailure) as refused:
        split(whole, [Group(10)], is_real=True)
    assert refused.value.code == INVALID_RESOURCE_CONFIGURATION
    parts, _ = split(whole, [Group(10, flags=BACKFILL)], is_real=True)
    assert parts[0].count == 10
    assert parts[0].flags == BACKFILL


def test_nothing_left_is_found_out_but_not_made():
    groups = [Group(24), Group(0)]
    parts, rest = split(device(), groups, is_real=False)
    assert [part.count for part in parts] == [24, 0]
    assert rest is None
    with pytest.raises(DriverFailure) as refused:
        split(device(), groups, is_real=True)
    assert refused.value.code == INVALID_RESOURCE_CONFIGURATION


@pytest.mark.parametrize(
    ("group", "code"),
    [
        (Group(5), INVALID_VALUE),
        (Group(26), INVALID_VALUE),
        (Group(4, 4), INVALID_VALUE),  # Before 9.0 at most 2 are scheduled together.
        (Group(4, preferred=3), INVALID_VALUE),
        (Group(4, flags=8), INVALID_VALUE),
        (Group(4, flags=2), INVALID_RESOURCE_CONFIGURATION),  # The device has no domains.
    ],
)
def test_a_group_that_can_not_be_is_refused(group, code):
    with pytest.raises(DriverFailure) as refused:
        split(device(), [group], is_real=True)
    assert refused.value.code == code


@given(
    st.sampled_from(NAMES),
    st.integers(1, 66),
    st.lists(
        st.builds(Group, st.sampled_from([0, 2, 4, 8, 16]), st.sampled_from([0, 2, 4, 8])),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_any_split_divides_the_whole(capability, count, groups, is_real):
    """Or the split is refused. A part has the requested count wherever a group names one."""
    whole = device(capability, count)
    try:
        parts, rest = split(whole, groups, is_real=is_real)
    except DriverFailure as refused:
        event(f"refused with {refused.code}")
        return
    assert is_divided(whole, parts, rest)
    for part, group in zip(parts, groups, strict=True):
        assert part.count == group.count or not group.count
        assert part.origin == parts[0].origin


def test_the_check_of_a_division_can_fail():
    parts, rest = split_by_count(device(), 0, 12)
    assert not is_divided(device(), [parts[0], parts[0]], rest)
    assert not is_divided(device(), parts[:1], rest)


def test_a_device_offers_all_that_it_has():
    whole = all_multiprocessors(0, named("9.0"))
    assert whole.count == 8
    assert whole.granularity.least == 8
