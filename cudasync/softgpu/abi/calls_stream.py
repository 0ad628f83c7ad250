"""Cellar. Driver calls about streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.registry import export
from cudasync.softgpu.abi.values import (
    get_i32,
    get_u32,
    get_u64,
    need,
    offer_u64,
    put_i32,
    put_u32,
    put_u64,
)
from cudasync.softgpu.core.results import INVALID_VALUE, NOT_READY, NOT_SUPPORTED, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_NOT_CAPTURING = 0


@export("cuStreamCreate")
def cu_stream_create(machine: Machine, stream: int, flags: int) -> None:
    need(stream)
    put_u64(stream, machine.streams.create(flags).handle)


@export("cuStreamCreateWithPriority")
def cu_stream_create_with_priority(
    machine: Machine, stream: int, flags: int, priority: int
) -> None:
    need(stream)
    put_u64(stream, machine.streams.create(flags, priority).handle)


@export("cuStreamDestroy")
def cu_stream_destroy(machine: Machine, stream: int) -> None:
    machine.streams.destroy(stream)


@export("cuStreamQuery")
def cu_stream_query(machine: Machine, stream: int) -> int:
    streams = machine.streams
    return 0 if streams.query(streams.get(stream)) else NOT_READY


@export("cuStreamSynchronize")
def cu_stream_synchronize(machine: Machine, stream: int) -> None:
    streams = machine.streams
    streams.synchronize(streams.get(stream))


@export("cuStreamWaitEvent")
def cu_stream_wait_event(machine: Machine, stream: int, event: int, flags: int) -> None:
    if flags & ~1:
        raise DriverFailure(INVALID_VALUE, f"unknown wait flags {flags:#x}")
    streams = machine.streams
    streams.wait(streams.get(stream), streams.event(event))


@export("cuStreamGetFlags")
def cu_stream_get_flags(machine: Machine, stream: int, flags: int) -> None:
    put_u32(flags, machine.streams.get(stream).flags)


@export("cuStreamGetPriority")
def cu_stream_get_priority(machine: Machine, stream: int, priority: int) -> None:
    put_i32(priority, machine.streams.get(stream).priority)


@export("cuStreamGetId")
def cu_stream_get_id(machine: Machine, stream: int, number: int) -> None:
    put_u64(number, machine.streams.get(stream).handle)


@export("cuStreamGetDevice")
def cu_stream_get_device(machine: Machine, stream: int, device: int) -> None:
    put_i32(device, machine.streams.get(stream).context.device.ordinal)


@export("cuStreamGetCtx", 9020, "CUstream, CUcontext *")
def cu_stream_get_ctx(machine: Machine, stream: int, context: int) -> None:
    put_u64(context, machine.streams.get(stream).context.handle)


@export("cuStreamGetCtx", 12050, "CUstream, CUcontext *, CUgreenCtx *")
def cu_stream_get_ctx_v2(machine: Machine, stream: int, context: int, green: int) -> None:
    offer_u64(green, 0)
    put_u64(context, machine.streams.get(stream).context.handle)


@export("cuStreamIsCapturing")
def cu_stream_is_capturing(machine: Machine, stream: int, status: int) -> None:
    machine.streams.get(stream)
    put_i32(status, _NOT_CAPTURING)


@export(
    "cuStreamGetCaptureInfo",
    11030,
    "CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, CUgraphNode const **, size_t *",
)
@export(
    "cuStreamGetCaptureInfo",
    12030,
    "CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, CUgraphNode const **, "
    "CUgraphEdgeData const **, size_t *",
)
def cu_stream_get_capture_info(machine: Machine, stream: int, status: int, *_details: int) -> None:
    cu_stream_is_capturing(machine, stream, status)


@export("cuThreadExchangeStreamCaptureMode")
def cu_thread_exchange_stream_capture_mode(_machine: Machine, mode: int) -> None:
    put_i32(mode, 0)


@export("cuLaunchHostFunc", 10000, "CUstream, CUhostFn, void *")
def cu_launch_host_func(machine: Machine, stream: int, function: int, user_data: int) -> None:
    machine.streams.launch_host(machine.streams.get(stream), function, user_data)


@export("cuLaunchHostFunc", 13020, "CUstream, CUhostFn, void *, unsigned int")
def cu_launch_host_func_v2(
    machine: Machine, stream: int, function: int, user_data: int, _mode: int
) -> None:
    cu_launch_host_func(machine, stream, function, user_data)


@export("cuStreamWaitValue32")
def cu_stream_wait_value_32(
    machine: Machine, stream: int, address: int, value: int, flags: int
) -> None:
    machine.streams.wait_value(machine.streams.get(stream), address, value, flags, 4)


@export("cuStreamWaitValue64")
def cu_stream_wait_value_64(
    machine: Machine, stream: int, address: int, value: int, flags: int
) -> None:
    machine.streams.wait_value(machine.streams.get(stream), address, value, flags, 8)


@export("cuStreamWriteValue32")
def cu_stream_write_value_32(
    machine: Machine, stream: int, address: int, value: int, _flags: int
) -> None:
    machine.streams.write_value(machine.streams.get(stream), address, value, 4)


@export("cuStreamWriteValue64")
def cu_stream_write_value_64(
    machine: Machine, stream: int, address: int, value: int, _flags: int
) -> None:
    machine.streams.write_value(machine.streams.get(stream), address, value, 8)


@export("cuStreamAttachMemAsync")
def cu_stream_attach_mem_async(
    machine: Machine, stream: int, _address: int, _size: int, _flags: int
) -> None:
    machine.streams.get(stream)


@export("cuStreamBeginCapture")
def cu_stream_begin_capture(_machine: Machine, _stream: int, _mode: int) -> None:
    raise DriverFailure(NOT_SUPPORTED, "stream capture is not supported")


# CUstreamBatchMemOpType, and the union of its parameters: each 48 bytes long.
_WAIT_32, _WRITE_32, _WAIT_64, _WRITE_64, _BARRIER = 1, 2, 4, 5, 6
_BATCH_OPERATION_BYTES = 48


@export("cuStreamBatchMemOp")
def cu_stream_batch_mem_op(
    machine: Machine, stream: int, count: int, operations: int, _flags: int
) -> None:
    target = machine.streams.get(stream)
    for index in range(count):
        start = operations + index * _BATCH_OPERATION_BYTES
        kind, address = get_u32(start), get_u64(start + 8)
        value, flags = get_u64(start + 16), get_u32(start + 24)
        match kind:
            case n if n == _WAIT_32:
                machine.streams.wait_value(target, address, value & 0xFFFFFFFF, flags, 4)
            case n if n == _WAIT_64:
                machine.streams.wait_value(target, address, value, flags, 8)
            case n if n == _WRITE_32:
                machine.streams.write_value(target, address, value & 0xFFFFFFFF, 4)
            case n if n == _WRITE_64:
                machine.streams.write_value(target, address, value, 8)
            case n if n == _BARRIER:
                pass  # Commands of a stream are in order anyway.
            case _:
                raise DriverFailure(NOT_SUPPORTED, f"memory operation {kind} is not supported")


@export("cuStreamAddCallback")
def cu_stream_add_callback(
    machine: Machine, stream: int, callback: int, user_data: int, flags: int
) -> None:
    if flags:
        raise DriverFailure(INVALID_VALUE, "the flags must be 0")
    machine.streams.add_callback(machine.streams.get(stream), callback, user_data)


# CUstreamAttrID: what can be set here is remembered by nobody, since it is about speed.
_SYNCHRONIZATION_POLICY, _PRIORITY = 3, 8
_STREAM_ATTRIBUTES = range(1, 19)


@export("cuStreamGetAttribute")
def cu_stream_get_attribute(machine: Machine, stream: int, attribute: int, value: int) -> None:
    found = machine.streams.get(stream)
    match attribute:
        case n if n == _SYNCHRONIZATION_POLICY:
            put_i32(value, 1)
        case n if n == _PRIORITY:
            put_i32(value, found.priority)
        case _:
            raise DriverFailure(NOT_SUPPORTED, f"stream attribute {attribute} is not supported")


@export("cuStreamSetAttribute")
def cu_stream_set_attribute(machine: Machine, stream: int, attribute: int, value: int) -> None:
    found = machine.streams.get(stream)
    if attribute not in _STREAM_ATTRIBUTES:
        raise DriverFailure(INVALID_VALUE, f"there is no stream attribute {attribute}")
    if attribute == _PRIORITY:
        found.priority = get_i32(value)


@export("cuStreamCopyAttributes")
def cu_stream_copy_attributes(machine: Machine, target: int, source: int) -> None:
    machine.streams.get(target).priority = machine.streams.get(source).priority


@export("cuProfilerStart")
def cu_profiler_start(machine: Machine) -> None:
    machine.context()


@export("cuProfilerStop")
def cu_profiler_stop(machine: Machine) -> None:
    machine.context()
