"""Cellar, core. The divisible resources of a device: multiprocessors and work queues.

Multiprocessors are the bits of an integer. A set of them carries its origin: a query (of the
device, a context or a green context), or the number of a split. Only a queried set can be split by
count, and only parts of one split go into one descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.device_limits import MULTIPROCESSORS

if TYPE_CHECKING:
    from cudasync.softgpu.core.driver_types.compute_capability import Capability

QUERIED: Final = 0
"""The origin of multiprocessors from a query."""

# CUdevWorkqueueConfigScope: of the whole context, or balanced between green contexts.
SCOPES: Final = (0, 1)
# The default of CUDA_DEVICE_MAX_CONNECTIONS.
_DEFAULT_CONCURRENCY: Final = 8


@dataclass(frozen=True, slots=True)
class Granularity:
    """The least size of a part, and the alignment of its size."""

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
    """CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG: the number of concurrent streams, and their scope."""

    ordinal: int
    concurrency: int = _DEFAULT_CONCURRENCY
    scope: int = SCOPES[0]


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """CU_DEV_RESOURCE_TYPE_WORKQUEUE: the queues of a context, which another may share."""

    ordinal: int
    owner: int
    """The context's handle."""


Resource = Multiprocessors | WorkQueueConfig | WorkQueue


def granularity_of(capability: Capability) -> Granularity:
    """The granularity by the driver API manual's guideline for each architecture."""
    if capability.major >= 9:
        return Granularity(8, 8, 32)
    return Granularity(4 if capability.major == 8 else 2, 2, 2)


def all_multiprocessors(ordinal: int, capability: Capability) -> Multiprocessors:
    """All multiprocessors of a device."""
    return Multiprocessors(ordinal, (1 << MULTIPROCESSORS) - 1, granularity_of(capability))
