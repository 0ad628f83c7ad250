"""Cellar, abi. Driver calls about green contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import need, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_CONTEXT,
    INVALID_VALUE,
    DriverFailure,
)
from cudasync.softgpu.core.streams.context_events import hold_context, record_context

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_DEFAULT_STREAM: Final = 1


@export("cuGreenCtxCreate")
def cu_green_ctx_create(
    machine: Machine, green: int, descriptor: int, device: int, flags: int
) -> None:
    need(green)
    if flags & ~_DEFAULT_STREAM:
        raise DriverFailure(INVALID_VALUE, f"unknown flags of a green context {flags:#x}")
    found = machine.device(device)
    put_u64(green, machine.green_contexts.create(descriptor, found).handle)


@export("cuGreenCtxDestroy")
def cu_green_ctx_destroy(machine: Machine, green: int) -> None:
    machine.green_contexts.destroy(green)


@export("cuCtxFromGreenCtx")
def cu_ctx_from_green_ctx(machine: Machine, context: int, green: int) -> None:
    put_u64(context, machine.green_contexts.get(green).context_handle)


@export("cuGreenCtxGetId")
def cu_green_ctx_get_id(machine: Machine, green: int, number: int) -> None:
    found = machine.green_contexts.get(green) if green else machine.current_green()
    if found is None:
        raise DriverFailure(INVALID_CONTEXT, "no green context is current on this thread")
    put_u64(number, found.handle)


@export("cuGreenCtxRecordEvent")
def cu_green_ctx_record_event(machine: Machine, green: int, event: int) -> None:
    found = machine.green_contexts.get(green)
    record_context(machine, machine.streams.event(event), found.primary, found)


@export("cuGreenCtxWaitEvent")
def cu_green_ctx_wait_event(machine: Machine, green: int, event: int) -> None:
    found = machine.green_contexts.get(green)
    hold_context(machine, found.primary, machine.streams.event(event), found)
