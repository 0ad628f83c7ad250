"""Cellar, abi. Runtime API, Peer Device Memory Access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.runtime.table import driver_function, runtime_function

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@runtime_function("cudaDeviceCanAccessPeer", "pii", in_context=False)
def cuda_device_can_access_peer(
    machine: Machine, answer: int, device: int, peer: int
) -> int | None:
    return driver_function("cuDeviceCanAccessPeer")(machine, answer, device, peer)


@runtime_function("cudaDeviceGetP2PAttribute", "piii", in_context=False)
def cuda_device_get_p2p_attribute(machine: Machine, *arguments: int) -> int | None:
    return driver_function("cuDeviceGetP2PAttribute")(machine, *arguments)


@runtime_function("cudaDeviceEnablePeerAccess", "iu")
def cuda_device_enable_peer_access(machine: Machine, peer: int, flags: int) -> int | None:
    context = machine.use_primary(machine.device(peer))
    return driver_function("cuCtxEnablePeerAccess")(machine, context.handle, flags)


@runtime_function("cudaDeviceDisablePeerAccess", "i")
def cuda_device_disable_peer_access(machine: Machine, peer: int) -> int | None:
    context = machine.use_primary(machine.device(peer))
    return driver_function("cuCtxDisablePeerAccess")(machine, context.handle)
