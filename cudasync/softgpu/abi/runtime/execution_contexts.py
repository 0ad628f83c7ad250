"""Cellar, abi. Runtime API, Execution Context Management: devices, and parts of them.

An execution context is the primary context of a device, or the context of a green context. The
handle is the driver's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import need, need_no_flags, put_u64
from cudasync.softgpu.abi.runtime.table import forward, runtime_function
from cudasync.softgpu.core.driver_types.result_codes import INVALID_CONTEXT, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

forward("""
cudaDeviceGetDevResource ipi
cudaStreamGetDevResource ppi
cudaDevSmResourceSplit puppup
cudaDevSmResourceSplitByCount ppppuu
cudaDevResourceGenerateDesc ppu
cudaExecutionCtxGetDevResource ppi cuCtxGetDevResource
cudaExecutionCtxGetDevice pp cuCtxGetDevice 13000
cudaExecutionCtxGetId pp cuCtxGetId
cudaExecutionCtxRecordEvent pp cuCtxRecordEvent
cudaExecutionCtxSynchronize p cuCtxSynchronize 13000
cudaExecutionCtxWaitEvent pp cuCtxWaitEvent
cudaGraphConditionalHandleCreate_v2 pppuu cuGraphConditionalHandleCreate
""")


@runtime_function("cudaDeviceGetExecutionCtx", "pi")
def cuda_device_get_execution_ctx(machine: Machine, context: int, device: int) -> None:
    need(context)
    put_u64(context, machine.use_primary(machine.device(device)).handle)


@runtime_function("cudaGreenCtxCreate", "ppiu")
def cuda_green_ctx_create(
    machine: Machine, context: int, descriptor: int, device: int, flags: int
) -> None:
    need(context)
    need_no_flags(flags)
    made = machine.green_contexts.create(descriptor, machine.device(device))
    put_u64(context, made.context_handle)


@runtime_function("cudaExecutionCtxDestroy", "p")
def cuda_execution_ctx_destroy(machine: Machine, context: int) -> None:
    green = machine.contexts.green.get(context)
    if green is None:
        raise DriverFailure(INVALID_CONTEXT, "only a green context can be destroyed")
    machine.green_contexts.destroy(green.handle)


@runtime_function("cudaExecutionCtxStreamCreate", "ppui")
def cuda_execution_ctx_stream_create(
    machine: Machine, stream: int, context: int, flags: int, priority: int
) -> None:
    need(stream)
    found = machine.contexts.get(context)
    machine.push(found, machine.contexts.green.get(context))
    try:
        made = machine.streams.create(flags, priority)
    finally:
        machine.pop()
    put_u64(stream, made.handle)
