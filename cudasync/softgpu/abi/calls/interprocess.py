"""Cellar. Driver calls about memory, pools and events of other processes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.marshalling.pointers import need, need_no_flags, put_i32, put_u64
from cudasync.softgpu.abi.marshalling.structures_by_value import by_value
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.memory.interprocess_handles import HANDLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine

_FILE_DESCRIPTOR: Final = 1
_LAZY_PEER_ACCESS: Final = 1


class _Handle(ctypes.Structure):
    """CUipcMemHandle and CUipcEventHandle, which are passed by value."""

    _fields_ = (("words", ctypes.c_uint64 * 8),)

    def __init__(self, *words: int) -> None:
        super().__init__((ctypes.c_uint64 * 8)(*words))


def _export_by_value(name: str, kinds: str) -> Callable[[Any], Any]:
    signature, decorate = by_value(kinds, _Handle)
    return lambda call: export(name, signature=signature)(decorate(call))


def _write(address: int, data: bytes) -> None:
    need(address, len(data))
    ctypes.memmove(address, data, len(data))


# Memory


@export("cuIpcGetMemHandle")
def cu_ipc_get_mem_handle(machine: Machine, handle: int, address: int) -> None:
    need(handle, HANDLE_BYTES)
    _write(handle, machine.interprocess.handle(address))


@_export_by_value("cuIpcOpenMemHandle", "pSu")
def cu_ipc_open_mem_handle(machine: Machine, handle: _Handle, address: int, flags: int) -> None:
    need(address)
    if flags & ~_LAZY_PEER_ACCESS:
        raise DriverFailure(INVALID_VALUE, f"there are no flags {flags:#x}")
    put_u64(address, machine.interprocess.open(bytes(handle)).start)


@export("cuIpcCloseMemHandle")
def cu_ipc_close_mem_handle(machine: Machine, address: int) -> None:
    machine.interprocess.close(address)


# Events


@export("cuIpcGetEventHandle")
def cu_ipc_get_event_handle(machine: Machine, handle: int, event: int) -> None:
    need(handle, HANDLE_BYTES)
    _write(handle, machine.streams.event_handle(machine.streams.event(event)))


@_export_by_value("cuIpcOpenEventHandle", "pS")
def cu_ipc_open_event_handle(machine: Machine, handle: _Handle, event: int) -> None:
    need(event)
    put_u64(event, machine.streams.open_event(bytes(handle)).handle)


# Pools


def _check_kind(kind: int, flags: int) -> None:
    need_no_flags(flags)
    if kind != _FILE_DESCRIPTOR:
        raise DriverFailure(NOT_SUPPORTED, "pools can only be exported as a file descriptor")


@export("cuMemPoolExportToShareableHandle")
def cu_mem_pool_export_to_shareable_handle(
    machine: Machine, shareable: int, pool: int, kind: int, flags: int
) -> None:
    need(shareable)
    found = machine.pools.get(pool)
    _check_kind(kind, flags)
    put_i32(shareable, machine.pools.hand_out(found))


@export("cuMemPoolImportFromShareableHandle")
def cu_mem_pool_import_from_shareable_handle(
    machine: Machine, pool: int, shareable: int, kind: int, flags: int
) -> None:
    need(pool)
    _check_kind(kind, flags)
    # The descriptor itself, in place of a pointer.
    put_u64(pool, machine.pools.take_in(shareable & 0xFFFFFFFF).handle)


@export("cuMemPoolExportPointer")
def cu_mem_pool_export_pointer(machine: Machine, data: int, address: int) -> None:
    need(data, HANDLE_BYTES)
    _write(data, machine.interprocess.pool_pointer(address))


@export("cuMemPoolImportPointer")
def cu_mem_pool_import_pointer(machine: Machine, address: int, pool: int, data: int) -> None:
    need(address)
    need(data, HANDLE_BYTES)
    found = machine.pools.get(pool)
    handle = ctypes.string_at(data, HANDLE_BYTES)
    put_u64(address, machine.interprocess.take_pointer(found, handle).start)
