"""Cellar, abi. Runtime API, Memory Management: pitched rows and boxes, their copies and fills."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import structure_at
from cudasync.softgpu.abi.runtime.structures import (
    Copy3D,
    Extent,
    PeerCopy3D,
    PitchedPointer,
    driver_copy,
    with_structures,
)
from cudasync.softgpu.abi.runtime.table import driver_function, runtime_function
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.abi.marshalling.node_structures import CopyParams
    from cudasync.softgpu.core.machine import Machine

_DEFAULT: Final = 0
_ELEMENT_BYTES: Final = 16


@runtime_function("cudaMallocPitch", "ppzz")
def cuda_malloc_pitch(
    machine: Machine, address: int, pitch: int, width: int, height: int
) -> int | None:
    arguments = (address, pitch, width, height, _ELEMENT_BYTES)
    return driver_function("cuMemAllocPitch")(machine, *arguments)


@with_structures("cudaMalloc3D", "pS", Extent)
def cuda_malloc_3d(machine: Machine, extent: Extent, made: int) -> int | None:
    pointer = structure_at(PitchedPointer, made)
    rows = extent.height * extent.depth
    at = ctypes.addressof(pointer)
    code = driver_function("cuMemAllocPitch")(
        machine, at, at + 8, extent.width, rows, _ELEMENT_BYTES
    )
    pointer.width, pointer.height = extent.width, extent.height
    return code


# Copies


def _rows_copy(
    machine: Machine,
    target: int,
    target_pitch: int,
    source: int,
    source_pitch: int,
    width: int,
    height: int,
) -> CopyParams:
    if width > target_pitch or width > source_pitch:
        raise DriverFailure(INVALID_VALUE, f"a pitch is less than the {width} bytes of a row")
    copy = Copy3D()
    copy.source.pointer = PitchedPointer(source, source_pitch, width, height)
    copy.target.pointer = PitchedPointer(target, target_pitch, width, height)
    copy.extent = Extent(width, height, 1)
    return driver_copy(machine, copy)


def _copied(machine: Machine, copy: CopyParams) -> int | None:
    return driver_function("cuMemcpy3D")(machine, ctypes.addressof(copy))


@runtime_function("cudaMemcpy2D", "pzpzzzi")
def cuda_memcpy_2d(machine: Machine, *arguments: int) -> int | None:
    return _copied(machine, _rows_copy(machine, *arguments[:6]))


@runtime_function("cudaMemcpy2DAsync", "pzpzzzip")
def cuda_memcpy_2d_async(machine: Machine, *arguments: int) -> int | None:
    copy = _rows_copy(machine, *arguments[:6])
    return driver_function("cuMemcpy3DAsync")(machine, ctypes.addressof(copy), arguments[7])


@runtime_function("cudaMemcpy3D", "p")
def cuda_memcpy_3d(machine: Machine, parameters: int) -> int | None:
    return _copied(machine, driver_copy(machine, structure_at(Copy3D, parameters)))


@runtime_function("cudaMemcpy3DAsync", "pp")
def cuda_memcpy_3d_async(machine: Machine, parameters: int, stream: int) -> int | None:
    copy = driver_copy(machine, structure_at(Copy3D, parameters))
    return driver_function("cuMemcpy3DAsync")(machine, ctypes.addressof(copy), stream)


def _primary(machine: Machine, ordinal: int) -> int:
    return machine.use_primary(machine.device(ordinal)).handle


@runtime_function("cudaMemcpyPeer", "pipiz")
def cuda_memcpy_peer(
    machine: Machine, target: int, to: int, source: int, of: int, size: int
) -> int | None:
    ends = (target, _primary(machine, to), source, _primary(machine, of))
    return driver_function("cuMemcpyPeer")(machine, *ends, size)


@runtime_function("cudaMemcpyPeerAsync", "pipizp")
def cuda_memcpy_peer_async(
    machine: Machine, target: int, to: int, source: int, of: int, size: int, stream: int
) -> int | None:
    ends = (target, _primary(machine, to), source, _primary(machine, of))
    return driver_function("cuMemcpyPeerAsync")(machine, *ends, size, stream)


def _peer_box(machine: Machine, parameters: int) -> CopyParams:
    given = structure_at(PeerCopy3D, parameters)
    copy = driver_copy(machine, Copy3D(given.source, given.target, given.extent))
    copy.source.reserved = _primary(machine, given.source_device)
    copy.target.reserved = _primary(machine, given.target_device)
    return copy


@runtime_function("cudaMemcpy3DPeer", "p")
def cuda_memcpy_3d_peer(machine: Machine, parameters: int) -> int | None:
    copy = _peer_box(machine, parameters)
    return driver_function("cuMemcpy3DPeer")(machine, ctypes.addressof(copy))


@runtime_function("cudaMemcpy3DPeerAsync", "pp")
def cuda_memcpy_3d_peer_async(machine: Machine, parameters: int, stream: int) -> int | None:
    copy = _peer_box(machine, parameters)
    return driver_function("cuMemcpy3DPeerAsync")(machine, ctypes.addressof(copy), stream)


# Fills


@runtime_function("cudaMemset2D", "pzizz")
def cuda_memset_2d(
    machine: Machine, address: int, pitch: int, value: int, width: int, height: int
) -> int | None:
    return driver_function("cuMemsetD2D8")(machine, address, pitch, value & 0xFF, width, height)


@runtime_function("cudaMemset2DAsync", "pzizzp")
def cuda_memset_2d_async(
    machine: Machine, address: int, pitch: int, value: int, width: int, height: int, stream: int
) -> int | None:
    rows = (address, pitch, value & 0xFF, width, height)
    return driver_function("cuMemsetD2D8Async")(machine, *rows, stream)


def _fill(
    machine: Machine, pointer: PitchedPointer, value: int, extent: Extent, stream: int
) -> None:
    """Fill slice after slice, each with the number of rows in the pointer."""
    if extent.height > pointer.height and extent.depth > 1:
        raise DriverFailure(
            INVALID_VALUE, f"{extent.height} rows do not fit a slice of {pointer.height}"
        )
    for slice_ in range(extent.depth):
        address = pointer.address + slice_ * pointer.pitch * pointer.height
        rows = (address, pointer.pitch, value & 0xFF, extent.width, extent.height)
        driver_function("cuMemsetD2D8Async")(machine, *rows, stream)


@with_structures("cudaMemset3D", "SiS", PitchedPointer, Extent)
def cuda_memset_3d(
    machine: Machine, pointer: PitchedPointer, extent: Extent, value: int
) -> int | None:
    _fill(machine, pointer, value, extent, _DEFAULT)
    return driver_function("cuStreamSynchronize")(machine, _DEFAULT)


@with_structures("cudaMemset3DAsync", "SiSp", PitchedPointer, Extent)
def cuda_memset_3d_async(
    machine: Machine, pointer: PitchedPointer, extent: Extent, value: int, stream: int
) -> None:
    _fill(machine, pointer, value, extent, stream)
