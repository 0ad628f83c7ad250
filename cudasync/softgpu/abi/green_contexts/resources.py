"""Cellar, abi. Driver calls about resources: the resources, their splits, and descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.green_contexts.structures import (
    SM,
    WORKQUEUE,
    WORKQUEUE_CONFIG,
    groups_at,
    multiprocessors_at,
    put_counts,
    put_resource,
    put_resources,
    resources_at,
)
from cudasync.softgpu.abi.marshalling.pointers import get_u32, need, need_no_flags, put_u32, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_RESOURCE_TYPE,
    INVALID_VALUE,
    DriverFailure,
)
from cudasync.softgpu.core.green_contexts.resources import (
    WorkQueue,
    WorkQueueConfig,
    all_multiprocessors,
)
from cudasync.softgpu.core.green_contexts.splits import split, split_by_count

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.green_contexts.contexts import GreenContext
    from cudasync.softgpu.core.green_contexts.resources import Resource
    from cudasync.softgpu.core.machine import Machine

_MOST_GROUPS: Final = 1 << 10


def _unknown(kind: int) -> DriverFailure:
    return DriverFailure(INVALID_RESOURCE_TYPE, f"there is no resource of type {kind} to query")


def _of(context: Context, green: GreenContext | None, kind: int) -> Resource:
    device = context.device
    if kind == SM:
        if green is not None:
            return green.multiprocessors
        return all_multiprocessors(device.ordinal, device.capability)
    if kind == WORKQUEUE_CONFIG:
        return WorkQueueConfig(device.ordinal) if green is None else green.config
    if kind == WORKQUEUE:
        return WorkQueue(device.ordinal, context.handle) if green is None else green.queue
    raise _unknown(kind)


@export("cuDeviceGetDevResource")
def cu_device_get_dev_resource(machine: Machine, device: int, resource: int, kind: int) -> None:
    found = machine.device(device)
    put_resource(resource, _of(found.primary, None, kind))


@export("cuCtxGetDevResource")
def cu_ctx_get_dev_resource(machine: Machine, context: int, resource: int, kind: int) -> None:
    found = machine.contexts.get(context)
    machine.check(found)
    put_resource(resource, _of(found, machine.contexts.green.get(context), kind))


@export("cuGreenCtxGetDevResource")
def cu_green_ctx_get_dev_resource(machine: Machine, green: int, resource: int, kind: int) -> None:
    found = machine.green_contexts.get(green)
    put_resource(resource, _of(found.primary, found, kind))


@export("cuStreamGetDevResource")
def cu_stream_get_dev_resource(machine: Machine, stream: int, resource: int, kind: int) -> None:
    found = machine.streams.get(stream)
    if kind != SM:
        raise _unknown(kind)
    put_resource(resource, _of(found.context, machine.streams.green_of(found, stream), kind))


@export("cuDevSmResourceSplitByCount")
def cu_dev_sm_resource_split_by_count(
    machine: Machine,
    result: int,
    group_count: int,
    whole: int,
    remaining: int,
    flags: int,
    least: int,
) -> None:
    need(group_count, 4)
    most = get_u32(group_count) if result else None
    if most == 0:
        raise DriverFailure(INVALID_VALUE, "a split needs at least one group")
    parts, rest = split_by_count(multiprocessors_at(whole), flags, least, most)
    if result:
        put_resources(result, parts)
    put_u32(group_count, len(parts))
    if remaining:
        put_resource(remaining, rest)


@export("cuDevSmResourceSplit")
def cu_dev_sm_resource_split(
    machine: Machine,
    result: int,
    group_count: int,
    whole: int,
    remaining: int,
    flags: int,
    params: int,
) -> None:
    need_no_flags(flags)
    if not 0 < group_count <= _MOST_GROUPS:
        raise DriverFailure(
            INVALID_VALUE, f"a split has 1 to {_MOST_GROUPS} groups, not {group_count}"
        )
    groups = groups_at(params, group_count)
    parts, rest = split(multiprocessors_at(whole), groups, is_real=bool(result))
    if result:
        put_resources(result, parts)
    put_counts(params, [part.count for part in parts])
    if remaining:
        put_resource(remaining, rest)


@export("cuDevResourceGenerateDesc")
def cu_dev_resource_generate_desc(
    machine: Machine, descriptor: int, resources: int, count: int
) -> None:
    need(descriptor)
    if not 0 < count <= _MOST_GROUPS:
        raise DriverFailure(
            INVALID_VALUE, f"a descriptor has 1 to {_MOST_GROUPS} resources, not {count}"
        )
    put_u64(descriptor, machine.green_contexts.describe(resources_at(resources, count)))
