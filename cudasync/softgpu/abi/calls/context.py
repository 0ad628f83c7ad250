"""Cellar. Driver calls about contexts: primary ones, created ones, and the current one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import (
    need,
    need_no_flags,
    offer_u32,
    offer_u64,
    put_i32,
    put_u32,
    put_u64,
)
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED,
    PEER_ACCESS_UNSUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.streams.context_events import hold_context, record_context
from cudasync.softgpu.core.streams.streams import HIGHEST_PRIORITY, LOWEST_PRIORITY

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.green_contexts.contexts import GreenContext
    from cudasync.softgpu.core.machine import Machine

_API_VERSION = 3020
_CACHE_CONFIGS = range(4)
_BANK_CONFIGS = range(3)
# Hardware with a choice of banks is long gone.
_FOUR_BYTE_BANKS = 1
_FLAGS = 0xFF


@export("cuDevicePrimaryCtxRetain")
def cu_device_primary_ctx_retain(machine: Machine, context: int, device: int) -> None:
    need(context)
    put_u64(context, machine.retain_primary(machine.device(device)).handle)


@export("cuDevicePrimaryCtxRelease")
def cu_device_primary_ctx_release(machine: Machine, device: int) -> None:
    machine.release_primary(machine.device(device))


@export("cuDevicePrimaryCtxReset")
def cu_device_primary_ctx_reset(machine: Machine, device: int) -> None:
    machine.reset_primary(machine.device(device))


@export("cuDevicePrimaryCtxGetState")
def cu_device_primary_ctx_get_state(machine: Machine, device: int, flags: int, active: int) -> None:
    found = machine.device(device)
    put_u32(flags, found.primary_flags)
    put_i32(active, int(found.primary_uses > 0))


@export("cuDevicePrimaryCtxSetFlags")
def cu_device_primary_ctx_set_flags(machine: Machine, device: int, flags: int) -> None:
    found = machine.device(device)
    if flags & ~_FLAGS:
        raise DriverFailure(INVALID_VALUE, f"unknown context flags {flags:#x}")
    found.primary_flags = flags


@export("cuCtxCreate", 2000, "CUcontext *, unsigned int, CUdevice")
@export("cuCtxCreate", 3020, "CUcontext *, unsigned int, CUdevice")
def cu_ctx_create_v2(machine: Machine, context: int, flags: int, device: int) -> None:
    need(context)
    put_u64(context, machine.create(machine.device(device), flags).handle)


@export("cuCtxCreate", 11040, "CUcontext *, CUexecAffinityParam *, int, unsigned int, CUdevice")
def cu_ctx_create_v3(
    machine: Machine, context: int, _affinities: int, count: int, flags: int, device: int
) -> None:
    if count:
        raise DriverFailure(INVALID_VALUE, "execution affinity is not supported")
    cu_ctx_create_v2(machine, context, flags, device)


@export("cuCtxCreate", 12050, "CUcontext *, CUctxCreateParams *, unsigned int, CUdevice")
def cu_ctx_create_v4(
    machine: Machine, context: int, _parameters: int, flags: int, device: int
) -> None:
    cu_ctx_create_v2(machine, context, flags, device)


@export("cuCtxDestroy")
def cu_ctx_destroy(machine: Machine, context: int) -> None:
    machine.destroy(machine.contexts.get(context))


@export("cuCtxSetCurrent")
def cu_ctx_set_current(machine: Machine, context: int) -> None:
    machine.set_current(
        machine.contexts.get(context) if context else None,
        machine.contexts.green.get(context),
    )


@export("cuCtxGetCurrent")
def cu_ctx_get_current(machine: Machine, context: int) -> None:
    current, green = machine.current(), machine.current_green()
    if green is not None:
        put_u64(context, green.context_handle)
    else:
        put_u64(context, current.handle if current is not None else 0)


@export("cuCtxPushCurrent")
def cu_ctx_push_current(machine: Machine, context: int) -> None:
    found = machine.contexts.get(context)
    machine.push(found, machine.contexts.green.get(context))


@export("cuCtxPopCurrent")
def cu_ctx_pop_current(machine: Machine, context: int) -> None:
    offer_u64(context, machine.pop())


@export("cuCtxGetDevice", 2000, "CUdevice *")
def cu_ctx_get_device(machine: Machine, device: int) -> None:
    put_i32(device, machine.context().device.ordinal)


@export("cuCtxGetDevice", 13000, "CUdevice *, CUcontext")
def cu_ctx_get_device_v2(machine: Machine, device: int, context: int) -> None:
    put_i32(device, _named(machine, context).device.ordinal)


@export("cuCtxSynchronize", 2000, "void")
def cu_ctx_synchronize(machine: Machine) -> None:
    cu_ctx_synchronize_v2(machine, 0)


@export("cuCtxSynchronize", 13000, "CUcontext")
def cu_ctx_synchronize_v2(machine: Machine, context: int) -> None:
    found, green = _named(machine, context), _green(machine, context)
    machine.captures.refuse_context(found, "a wait for the context", green)
    machine.streams.synchronize_context(found, green)


@export("cuCtxGetFlags")
def cu_ctx_get_flags(machine: Machine, flags: int) -> None:
    context = machine.context()
    put_u32(flags, context.device.primary_flags if context.is_primary else context.flags)


@export("cuCtxSetFlags")
def cu_ctx_set_flags(machine: Machine, flags: int) -> None:
    if flags & ~_FLAGS:
        raise DriverFailure(INVALID_VALUE, f"unknown context flags {flags:#x}")
    context = machine.context()
    if context.is_primary:
        context.device.primary_flags = flags
    context.flags = flags


@export("cuCtxGetId")
def cu_ctx_get_id(machine: Machine, context: int, number: int) -> None:
    found, green = _named(machine, context), _green(machine, context)
    put_u64(number, found.handle if green is None else green.context_handle)


@export("cuCtxGetApiVersion")
def cu_ctx_get_api_version(machine: Machine, context: int, version: int) -> None:
    _named(machine, context)
    put_u32(version, _API_VERSION)


@export("cuCtxGetStreamPriorityRange")
def cu_ctx_get_stream_priority_range(machine: Machine, least: int, greatest: int) -> None:
    machine.context()
    offer_u32(least, LOWEST_PRIORITY)
    offer_u32(greatest, HIGHEST_PRIORITY)


@export("cuCtxGetLimit")
def cu_ctx_get_limit(machine: Machine, value: int, limit: int) -> None:
    put_u64(value, machine.limit(machine.context(), limit))


@export("cuCtxSetLimit")
def cu_ctx_set_limit(machine: Machine, limit: int, value: int) -> None:
    machine.set_limit(machine.context(), limit, value)


@export("cuCtxGetCacheConfig")
def cu_ctx_get_cache_config(machine: Machine, config: int) -> None:
    put_i32(config, machine.context().cache_config)


@export("cuCtxSetCacheConfig")
def cu_ctx_set_cache_config(machine: Machine, config: int) -> None:
    context = machine.context()
    if config not in _CACHE_CONFIGS:
        raise DriverFailure(INVALID_VALUE, f"there is no cache configuration {config}")
    context.cache_config = config


@export("cuCtxGetSharedMemConfig")
def cu_ctx_get_shared_mem_config(machine: Machine, config: int) -> None:
    machine.context()
    put_i32(config, _FOUR_BYTE_BANKS)


@export("cuCtxSetSharedMemConfig")
def cu_ctx_set_shared_mem_config(machine: Machine, config: int) -> None:
    machine.context()
    if config not in _BANK_CONFIGS:
        raise DriverFailure(INVALID_VALUE, f"there is no configuration {config} of banks")


# Shared use, and order between whole contexts


@export("cuCtxAttach")
def cu_ctx_attach(machine: Machine, context: int, flags: int) -> None:
    need(context)
    need_no_flags(flags)
    found = machine.context()
    machine.attach(found)
    put_u64(context, found.handle)


@export("cuCtxDetach")
def cu_ctx_detach(machine: Machine, context: int) -> None:
    machine.detach(machine.contexts.get(context))


@export("cuCtxRecordEvent")
def cu_ctx_record_event(machine: Machine, context: int, event: int) -> None:
    found, green = _named(machine, context), _green(machine, context)
    record_context(machine, machine.streams.event(event), found, green)


@export("cuCtxWaitEvent")
def cu_ctx_wait_event(machine: Machine, context: int, event: int) -> None:
    found, green = _named(machine, context), _green(machine, context)
    hold_context(machine, found, machine.streams.event(event), green)


@export("cuCtxEnablePeerAccess")
def cu_ctx_enable_peer_access(machine: Machine, peer: int, flags: int) -> None:
    context = machine.context()
    device = machine.contexts.get(peer).device
    if flags or device is context.device:
        raise DriverFailure(
            INVALID_VALUE, "the flags must be 0, and the peer must not be the current device"
        )
    if not machine.peers.include(context.device, device):
        raise DriverFailure(PEER_ACCESS_UNSUPPORTED)
    if device in context.peers:
        raise DriverFailure(PEER_ACCESS_ALREADY_ENABLED)
    context.peers.add(device)


@export("cuCtxDisablePeerAccess")
def cu_ctx_disable_peer_access(machine: Machine, peer: int) -> None:
    context = machine.context()
    device = machine.contexts.get(peer).device
    if device not in context.peers:
        raise DriverFailure(PEER_ACCESS_NOT_ENABLED)
    context.peers.discard(device)


def _green(machine: Machine, handle: int) -> GreenContext | None:
    """The green context behind a context's handle; 0 means the current one."""
    if not handle:
        return machine.current_green()
    return machine.contexts.green.get(handle)


def _named(machine: Machine, handle: int) -> Context:
    """The context of a handle; 0 means the current one."""
    if not handle:
        return machine.context()
    context = machine.contexts.get(handle)
    machine.check(context)
    return context
