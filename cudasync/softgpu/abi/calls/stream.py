"""Cellar. Driver calls about streams."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import (
    get_i32,
    get_u32,
    get_u64,
    need,
    need_code,
    need_no_flags,
    offer_u64,
    put_i32,
    put_u32,
    put_u64,
)
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_READY,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.stream_capture import Status
from cudasync.softgpu.core.streams.streams import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    PER_THREAD_HANDLE,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


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
    streams = machine.streams
    on, what = streams.live_streams.get(stream), streams.live_events.get(event)
    # The most common case goes straight to the executor.
    if not (
        flags
        or on is None
        or what is None
        or on.capture is not None
        or what.captured is not None
        or on.context.error
        or what.context.error
    ):
        machine.executor.hold(on, what)
        return
    if flags & ~1:
        raise DriverFailure(INVALID_VALUE, f"unknown wait flags {flags:#x}")
    streams.wait(streams.get(stream), streams.event(event), flags)


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
    found = machine.streams.get(stream)
    green = machine.streams.green_of(found, stream)
    put_u64(context, found.context.handle if green is None else green.context_handle)


@export("cuStreamGetCtx", 12050, "CUstream, CUcontext *, CUgreenCtx *")
def cu_stream_get_ctx_v2(machine: Machine, stream: int, context: int, green: int) -> None:
    found = machine.streams.get(stream)
    of = machine.streams.green_of(found, stream)
    if of is not None and stream == PER_THREAD_HANDLE:
        raise DriverFailure(
            INVALID_HANDLE,
            "a green context has no per-thread default stream: use a stream of your own",
        )
    offer_u64(green, 0 if of is None else of.handle)
    put_u64(context, found.context.handle)


@export("cuLaunchHostFunc", 10000, "CUstream, CUhostFn, void *")
def cu_launch_host_func(machine: Machine, stream: int, function: int, user_data: int) -> None:
    need_code(function)
    machine.streams.launch_host(machine.streams.get(stream), function, user_data)


@export("cuLaunchHostFunc", 13010, "CUstream, CUhostFn, void *, unsigned int")
def cu_launch_host_func_v2(
    machine: Machine, stream: int, function: int, user_data: int, _mode: int
) -> None:
    cu_launch_host_func(machine, stream, function, user_data)


_FLUSH = 1 << 30


def _check_wait(address: int, flags: int, size_bytes: int) -> None:
    if flags & _FLUSH:
        raise DriverFailure(NOT_SUPPORTED, "a flush of remote writes is not modelled")
    if flags & ~3 or address % size_bytes:
        raise DriverFailure(
            INVALID_VALUE,
            f"a wait has unknown flags {flags:#x} or a misaligned address {address:#x}",
        )


def _check_write(address: int, flags: int, size_bytes: int) -> None:
    if flags & ~1 or address % size_bytes:
        raise DriverFailure(
            INVALID_VALUE,
            f"a write has unknown flags {flags:#x} or a misaligned address {address:#x}",
        )


@export("cuStreamWaitValue32")
def cu_stream_wait_value_32(
    machine: Machine, stream: int, address: int, value: int, flags: int
) -> None:
    _check_wait(address, flags, 4)
    machine.streams.wait_value(machine.streams.get(stream), address, value, flags, 4)


@export("cuStreamWaitValue64")
def cu_stream_wait_value_64(
    machine: Machine, stream: int, address: int, value: int, flags: int
) -> None:
    _check_wait(address, flags, 8)
    machine.streams.wait_value(machine.streams.get(stream), address, value, flags, 8)


@export("cuStreamWriteValue32")
def cu_stream_write_value_32(
    machine: Machine, stream: int, address: int, value: int, flags: int
) -> None:
    _check_write(address, flags, 4)
    machine.streams.write_value(machine.streams.get(stream), address, value, 4)


@export("cuStreamWriteValue64")
def cu_stream_write_value_64(
    machine: Machine, stream: int, address: int, value: int, flags: int
) -> None:
    _check_write(address, flags, 8)
    machine.streams.write_value(machine.streams.get(stream), address, value, 8)


# CUstreamBatchMemOpType; each operation's union of parameters has 48 bytes.
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
    need_no_flags(flags)
    need_code(callback)
    machine.streams.add_callback(machine.streams.get(stream), callback, user_data)


# CUstreamAttrID, and the value of each unless it was set. The union of values has 64 bytes.
_PRIORITY, _VALUE_BYTES = 8, 64
_ATTRIBUTES = {
    1: bytes(_VALUE_BYTES),  # access policy window
    3: (1).to_bytes(_VALUE_BYTES, "little"),  # synchronisation policy: automatic
    9: (0x0100).to_bytes(_VALUE_BYTES, "little"),  # memory synchronisation domain map: 0 and 1
    10: bytes(_VALUE_BYTES),  # memory synchronisation domain
}


def _check_attribute(attribute: int) -> None:
    if attribute != _PRIORITY and attribute not in _ATTRIBUTES:
        raise DriverFailure(INVALID_VALUE, f"streams have no attribute {attribute}")


@export("cuStreamGetAttribute")
def cu_stream_get_attribute(machine: Machine, stream: int, attribute: int, value: int) -> None:
    found = machine.streams.get(stream)
    _check_attribute(attribute)
    if attribute == _PRIORITY:
        put_i32(value, found.priority)
        return
    need(value, _VALUE_BYTES)
    data = found.attributes.get(attribute, _ATTRIBUTES[attribute])
    ctypes.memmove(value, data, _VALUE_BYTES)


@export("cuStreamSetAttribute")
def cu_stream_set_attribute(machine: Machine, stream: int, attribute: int, value: int) -> None:
    found = machine.streams.get(stream)
    _check_attribute(attribute)
    if attribute == _PRIORITY:
        found.priority = min(LOWEST_PRIORITY, max(HIGHEST_PRIORITY, get_i32(value)))
        return
    need(value, _VALUE_BYTES)
    found.attributes[attribute] = ctypes.string_at(value, _VALUE_BYTES)


@export("cuStreamCopyAttributes")
def cu_stream_copy_attributes(machine: Machine, target: int, source: int) -> None:
    to, of = machine.streams.get(target), machine.streams.get(source)
    if to.context is not of.context:
        raise DriverFailure(INVALID_HANDLE, "the streams belong to different contexts")
    to.priority = of.priority
    to.attributes = dict(of.attributes)


@export("cuProfilerStart")
def cu_profiler_start(machine: Machine) -> None:
    machine.context()


@export("cuProfilerStop")
def cu_profiler_stop(machine: Machine) -> None:
    machine.context()


@export("cuThreadExchangeStreamCaptureMode")
def cu_thread_exchange_stream_capture_mode(machine: Machine, mode: int) -> None:
    # cudasync calls this around each query of an event, so it is written for speed.
    need(mode, 4)
    word = ctypes.c_uint32.from_address(mode)
    word.value = machine.captures.exchange_mode(word.value)


@export("cuStreamIsCapturing")
def cu_stream_is_capturing(machine: Machine, stream: int, status: int) -> None:
    # Here and not with the other calls of captures, which are imported when a program captures:
    # each stream that cudasync destroys is asked first.
    # Written first: CUDA leaves it open what a failing call writes, and bindings of CUDA 12 raise
    # ValueError if it is not a status.
    put_i32(status, Status.NONE)
    capture = machine.captures.of(machine.streams.get(stream))
    if capture is not None:
        put_i32(status, capture.status)
