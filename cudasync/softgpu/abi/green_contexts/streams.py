"""Cellar, abi. Driver calls about the streams of green contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import need, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.streams.streams import NON_BLOCKING

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@export("cuGreenCtxStreamCreate")
def cu_green_ctx_stream_create(
    machine: Machine, stream: int, green: int, flags: int, priority: int
) -> None:
    need(stream)
    found = machine.green_contexts.get(green)
    if flags != NON_BLOCKING:
        raise DriverFailure(INVALID_VALUE, "a stream of a green context must be NON_BLOCKING")
    put_u64(stream, machine.streams.create(flags, priority, found).handle)


@export("cuStreamGetGreenCtx")
def cu_stream_get_green_ctx(machine: Machine, stream: int, green: int) -> None:
    of = machine.streams.green_of(machine.streams.get(stream), stream)
    put_u64(green, 0 if of is None else of.handle)
