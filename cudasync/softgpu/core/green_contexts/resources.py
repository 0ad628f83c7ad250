"""Cellar, core. What a device can be divided into: multiprocessors and work queues.

Multiprocessors are the bits of an integer. A set of them says where it comes from: a query (of the
device, a context or a green context), or one split among all those of the process. Only what was
queried can be split by count, and only parts of one split go into one descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.device_limits import MULTIPROCESSORS

if TYPE_CHECKING:
    from cudasync.softgpu.core.driver_types.compute_capability import Capability

QUERIED: Final = 0
"""The origin of multiprocessors that come from no split."""

# CUdevWorkqueueConfigScope: of the whole context, or balanced between green contexts.
SCOPES: Final = (0, 1)
# What CUDA_DEVICE_MAX_CONNECTIONS is unless it is set.
_DEFAULT_CONCURRENCY: Final = 8


@dataclass(frozen=True, slots=True)
class Granularity:
    """How small a part may be, and of what its size is a multiple."""

    least: int
    alignment: int
    most_coscheduled: int


@dataclass(frozen=True, slots=True)
class Multiprocessors:
    """CU_DEV_RESOURCE_TYPE_SM: some of a device's multiprocessors."""

    ordinal: int
    mask: int
    granularity: Granularity
    origin: int = QUERIED
    flags: int = 0

    @property
    def count(self) -> int:
        return self.mask.bit_count()


@dataclass(frozen=True, slots=True)
class WorkQueueConfig:
    """CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG: how many streams are served at once, and whose."""

    ordinal: int
    concurrency: int = _DEFAULT_CONCURRENCY
    scope: int = SCOPES[0]


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """CU_DEV_RESOURCE_TYPE_WORKQUEUE: the queues of a context, which another one may share."""

    ordinal: int
    owner: int
    """The context's handle."""


Resource = Multiprocessors | WorkQueueConfig | WorkQueue


def granularity_of(capability: Capability) -> Granularity:
    """By the driver API manual's guideline for each compute architecture (Green Contexts)."""
    if capability.major >= 9:
        return Granularity(8, 8, 32)
    return Granularity(4 if capability.major == 8 else 2, 2, 2)


def all_multiprocessors(ordinal: int, capability: Capability) -> Multiprocessors:
    """The whole device."""
    return Multiprocessors(ordinal, (1 << MULTIPROCESSORS) - 1, granularity_of(capability))
