"""Cellar. Driver calls about events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import need, put_f32, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, NOT_READY, DriverFailure
from cudasync.softgpu.core.streams.streams import elapsed_ms

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@export("cuEventCreate")
def cu_event_create(machine: Machine, event: int, flags: int) -> None:
    need(event)
    put_u64(event, machine.streams.create_event(flags).handle)


@export("cuEventDestroy")
def cu_event_destroy(machine: Machine, event: int) -> None:
    machine.streams.destroy_event(event)


@export("cuEventRecord")
def cu_event_record(machine: Machine, event: int, stream: int) -> None:
    streams = machine.streams
    what, on = streams.live_events.get(event), streams.live_streams.get(stream)
    # The most common case goes straight to the executor.
    if (
        what is None
        or on is None
        or what.context is not on.context
        or on.capture is not None
        or on.context.error
        or what.shared is not None
    ):
        streams.record(streams.event(event), streams.get(stream))
    else:
        machine.executor.record(what, on)


@export("cuEventRecordWithFlags")
def cu_event_record_with_flags(machine: Machine, event: int, stream: int, flags: int) -> None:
    if flags & ~1:
        raise DriverFailure(INVALID_VALUE, f"unknown record flags {flags:#x}")
    streams = machine.streams
    streams.record(streams.event(event), streams.get(stream), flags)


@export("cuEventQuery")
def cu_event_query(machine: Machine, event: int) -> int:
    streams = machine.streams
    return 0 if streams.query_event(streams.event(event)) else NOT_READY


@export("cuEventSynchronize")
def cu_event_synchronize(machine: Machine, event: int) -> None:
    streams = machine.streams
    streams.synchronize_event(streams.event(event))


# The new version changed the resolution of the answer, not the signature.
@export("cuEventElapsedTime")
def cu_event_elapsed_time(machine: Machine, milliseconds: int, start: int, end: int) -> None:
    streams = machine.streams
    put_f32(milliseconds, elapsed_ms(streams.event(start), streams.event(end)))
