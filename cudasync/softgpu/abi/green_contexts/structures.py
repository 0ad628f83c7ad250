"""Cellar, abi. C structures of resources: CUdevResource, and the parameters of a split.

The bytes that cuda.h reserves for the driver say where a resource comes from. So the driver can
tell its own resources from invented ones. Only a work queue's configuration may be invented.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import need, structure_at
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_RESOURCE_TYPE,
    INVALID_VALUE,
    DriverFailure,
)
from cudasync.softgpu.core.green_contexts.resources import (
    Granularity,
    Multiprocessors,
    Resource,
    WorkQueue,
    WorkQueueConfig,
)
from cudasync.softgpu.core.green_contexts.splits import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

_i32, _u32, _u64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64

SM: Final = 1
WORKQUEUE_CONFIG: Final = 1000
WORKQUEUE: Final = 10000
"""CUdevResourceType."""

_MARK: Final = int.from_bytes(b"cudasync", "little")


class _Sm(ctypes.Structure):
    """CUdevSmResource."""

    _fields_ = (
        ("count", _u32),
        ("least", _u32),
        ("alignment", _u32),
        ("flags", _u32),
        ("locality_domain", _u32),
    )


class _Config(ctypes.Structure):
    """CUdevWorkqueueConfigResource."""

    _fields_ = (("device", _i32), ("concurrency", _u32), ("scope", _i32))


class _Union(ctypes.Union):
    _fields_ = (("sm", _Sm), ("config", _Config), ("owner", _u64), ("bytes", ctypes.c_ubyte * 48))


class DevResource(ctypes.Structure):
    """CUdevResource, with the driver's data in its padding."""

    _fields_ = (
        ("kind", _u32),
        ("ordinal", _i32),
        ("mark", _u64),
        ("origin", _u64),
        ("mask", _u64),
        ("most_coscheduled", _u32),
        ("padding", ctypes.c_ubyte * 60),
        ("of", _Union),
    )


class _GroupParams(ctypes.Structure):
    """CU_DEV_SM_RESOURCE_GROUP_PARAMS; before CUDA 13.4 the domain was a reserved word."""

    _fields_ = (
        ("count", _u32),
        ("coscheduled", _u32),
        ("preferred", _u32),
        ("flags", _u32),
        ("locality_domain", _u32),
        ("reserved", _u32 * 11),
    )


def resource_at(address: int) -> Resource:
    """The resource that a CUdevResource describes."""
    raw = structure_at(DevResource, address)
    if raw.kind == WORKQUEUE_CONFIG:
        config = raw.of.config
        return WorkQueueConfig(config.device, config.concurrency, config.scope)
    if raw.kind not in (SM, WORKQUEUE):
        raise DriverFailure(
            INVALID_RESOURCE_TYPE, f"{raw.kind} is not the type of a valid resource"
        )
    if raw.mark != _MARK:
        raise DriverFailure(INVALID_VALUE, "the resource does not come from the driver")
    if raw.kind == WORKQUEUE:
        return WorkQueue(raw.ordinal, raw.of.owner)
    sm = raw.of.sm
    granularity = Granularity(sm.least, sm.alignment, raw.most_coscheduled)
    return Multiprocessors(raw.ordinal, raw.mask, granularity, raw.origin, sm.flags)


def multiprocessors_at(address: int) -> Multiprocessors:
    """The multiprocessors that a CUdevResource describes; INVALID_RESOURCE_TYPE otherwise."""
    found = resource_at(address)
    if not isinstance(found, Multiprocessors):
        raise DriverFailure(INVALID_RESOURCE_TYPE, "only multiprocessors can be split")
    return found


def resources_at(address: int, count: int) -> list[Resource]:
    """An array of resources."""
    size = ctypes.sizeof(DevResource)
    need(address, size * max(1, count))
    return [resource_at(address + size * index) for index in range(count)]


def put_resource(address: int, resource: Resource | None) -> None:
    """Write a CUdevResource; None stands for an invalid one."""
    raw = structure_at(DevResource, address)
    ctypes.memset(address, 0, ctypes.sizeof(DevResource))
    if resource is None:
        return
    raw.ordinal, raw.mark = resource.ordinal, _MARK
    match resource:
        case Multiprocessors():
            raw.kind, raw.origin, raw.mask = SM, resource.origin, resource.mask
            granularity = resource.granularity
            raw.most_coscheduled = granularity.most_coscheduled
            raw.of.sm = _Sm(
                resource.count, granularity.least, granularity.alignment, resource.flags
            )
        case WorkQueueConfig():
            raw.kind = WORKQUEUE_CONFIG
            raw.of.config = _Config(resource.ordinal, resource.concurrency, resource.scope)
        case WorkQueue():
            raw.kind, raw.of.owner = WORKQUEUE, resource.owner


def put_resources(address: int, resources: Sequence[Resource]) -> None:
    """Write an array of resources."""
    size = ctypes.sizeof(DevResource)
    need(address, size * max(1, len(resources)))
    for index, resource in enumerate(resources):
        put_resource(address + size * index, resource)


def groups_at(address: int, count: int) -> list[Group]:
    """The parameters of each part of a split."""
    size = ctypes.sizeof(_GroupParams)
    need(address, size * max(1, count))
    rows = [_GroupParams.from_address(address + size * index) for index in range(count)]
    return [Group(row.count, row.coscheduled, row.preferred, row.flags) for row in rows]


def put_counts(address: int, counts: Sequence[int]) -> None:
    """Write the number of multiprocessors that each part received."""
    for index, count in enumerate(counts):
        _GroupParams.from_address(address + ctypes.sizeof(_GroupParams) * index).count = count
