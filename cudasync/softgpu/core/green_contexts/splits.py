"""Cellar, core. Splits of multiprocessors: cuDevSmResourceSplitByCount, cuDevSmResourceSplit.

The first makes equal parts, and rounds the count up to the device's granularity. The second makes
the described parts in their order, without rounding. The rules are from the driver API manual's
chapter on green contexts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_RESOURCE_CONFIGURATION,
    INVALID_VALUE,
    DriverFailure,
)
from cudasync.softgpu.core.green_contexts.resources import QUERIED, Granularity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.green_contexts.resources import Multiprocessors

# CUdevSmResourceSplitByCount_flags.
_IGNORE_COSCHEDULING: Final = 1
_LARGE_CLUSTERS: Final = 2
_CLUSTERS_FROM: Final = 8
"""The alignment of devices with clusters."""

# CUdevSmResourceGroup_flags.
BACKFILL: Final = 1
_LOCALITY_DOMAIN: Final = 2

# next() on it is one C call: no two splits get the same number.
_numbers = count(QUERIED + 1)


@dataclass(frozen=True, slots=True)
class Group:
    """CU_DEV_SM_RESOURCE_GROUP_PARAMS: the description of one part; 0 stands for the default."""

    count: int
    coscheduled: int = 0
    preferred: int = 0
    flags: int = 0


def split_by_count(
    whole: Multiprocessors, flags: int, least: int, most_groups: int | None = None
) -> tuple[list[Multiprocessors], Multiprocessors | None]:
    """Equal parts of at least `least` multiprocessors, and the rest of the whole.

    DriverFailure INVALID_RESOURCE_CONFIGURATION if no part fits.
    """
    if whole.origin != QUERIED:
        raise DriverFailure(
            INVALID_RESOURCE_CONFIGURATION,
            "a part of a split can be split again only as the resource of a green context",
        )
    if not 0 <= least <= whole.count:
        raise DriverFailure(
            INVALID_VALUE, f"a part needs 0 to {whole.count} multiprocessors, not {least}"
        )
    granularity = _lowered(whole.granularity, flags)
    size = max(granularity.least, _rounded_up(least, granularity.alignment))
    groups = whole.count // size
    if not groups:
        raise DriverFailure(
            INVALID_RESOURCE_CONFIGURATION,
            f"a part needs at least {size} multiprocessors, and only {whole.count} are given",
        )
    if most_groups is not None:
        groups = min(groups, most_groups)
    return _cut(replace(whole, granularity=granularity), [size] * groups, [0] * groups)


def _lowered(granularity: Granularity, flags: int) -> Granularity:
    if flags & ~(_IGNORE_COSCHEDULING | _LARGE_CLUSTERS):
        raise DriverFailure(INVALID_VALUE, f"unknown flags of a split {flags:#x}")
    if flags & _LARGE_CLUSTERS and granularity.alignment < _CLUSTERS_FROM:
        raise DriverFailure(
            INVALID_VALUE, "MAX_POTENTIAL_CLUSTER_SIZE is for compute capability 9.0 and later"
        )
    if flags & _IGNORE_COSCHEDULING:
        return replace(granularity, least=2, alignment=2)
    return granularity


def split(
    whole: Multiprocessors, groups: Sequence[Group], *, is_real: bool
) -> tuple[list[Multiprocessors], Multiprocessors | None]:
    """Parts as described, in their order, and the rest of the whole.

    A count of 0 takes all remaining multiprocessors that fit the structure. Only with `is_real`
    must each part be non-empty. DriverFailure INVALID_VALUE for an impossible count or structure,
    INVALID_RESOURCE_CONFIGURATION for one that does not fit this whole.
    """
    if not groups:
        raise DriverFailure(INVALID_VALUE, "a split needs at least one group")
    left, sizes = whole.count, []
    for number, group in enumerate(groups):
        unit = _unit(whole, group)
        size = group.count or left - left % unit
        _check_size(whole, group, size, unit)
        if size > left or (is_real and size < unit):
            raise DriverFailure(
                INVALID_RESOURCE_CONFIGURATION,
                f"group {number} needs {max(size, unit)} multiprocessors, and {left} are left",
            )
        sizes.append(size)
        left -= size
    return _cut(whole, sizes, [group.flags for group in groups])


def _unit(whole: Multiprocessors, group: Group) -> int:
    most = whole.granularity.most_coscheduled
    for asked in (group.coscheduled, group.preferred):
        if asked % 2 or not 0 <= asked <= most:
            raise DriverFailure(
                INVALID_VALUE,
                f"{asked} multiprocessors are co-scheduled: give an even number from 0 to {most}",
            )
    if group.flags & _LOCALITY_DOMAIN:
        raise DriverFailure(INVALID_RESOURCE_CONFIGURATION, "the device has no locality domains")
    if group.flags & ~BACKFILL:
        raise DriverFailure(INVALID_VALUE, f"a group has unknown flags {group.flags:#x}")
    if group.flags & BACKFILL:
        return 2
    return group.coscheduled or whole.granularity.alignment


def _check_size(whole: Multiprocessors, group: Group, size: int, unit: int) -> None:
    if group.count % 2 or not 0 <= group.count <= whole.count:
        raise DriverFailure(
            INVALID_VALUE,
            f"a group needs an even count of multiprocessors to {whole.count}, not {group.count}",
        )
    if size % unit:
        raise DriverFailure(
            INVALID_RESOURCE_CONFIGURATION,
            f"{size} multiprocessors are not a multiple of the {unit} that are co-scheduled",
        )


def _cut(
    whole: Multiprocessors, sizes: Sequence[int], flags: Sequence[int]
) -> tuple[list[Multiprocessors], Multiprocessors | None]:
    """Cut parts off the whole, the lowest multiprocessors first."""
    number = next(_numbers)
    bits = [bit for bit in range(whole.mask.bit_length()) if whole.mask >> bit & 1]
    parts, start = [], 0
    for size, flag in zip(sizes, flags, strict=True):
        mask = sum(1 << bit for bit in bits[start : start + size])
        parts.append(replace(whole, mask=mask, origin=number, flags=flag))
        start += size
    rest = sum(1 << bit for bit in bits[start:])
    return parts, replace(whole, mask=rest, origin=number, flags=0) if rest else None


def _rounded_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
