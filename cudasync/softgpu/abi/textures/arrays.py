"""Cellar. Driver calls that create, destroy and describe arrays."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import need, put_u64, structure_at
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.abi.textures.structures import (
    Array3DDescriptor,
    ArrayDescriptor,
    MemoryRequirements,
    shape_3d_at,
    shape_at,
)
from cudasync.softgpu.core.driver_types.device_limits import TEXTURE_ALIGNMENT
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.textures.formats import check_channels, format_of

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

# The largest width of a linear texture, in texels.
_MOST_LINEAR: Final = 1 << 27


@export("cuArrayCreate")
def cu_array_create(machine: Machine, handle: int, description: int) -> None:
    need(handle)
    put_u64(handle, machine.arrays.create(shape_at(description)).handle)


@export("cuArray3DCreate")
def cu_array_3d_create(machine: Machine, handle: int, description: int) -> None:
    need(handle)
    put_u64(handle, machine.arrays.create(shape_3d_at(description)).handle)


@export("cuArrayDestroy")
def cu_array_destroy(machine: Machine, array: int) -> None:
    machine.arrays.destroy(array)


@export("cuArrayGetDescriptor")
def cu_array_get_descriptor(machine: Machine, description: int, array: int) -> None:
    what = structure_at(ArrayDescriptor, description)
    shape = machine.arrays.get(array).shape
    what.width, what.height = shape.width, shape.height
    what.format, what.channels = shape.format.code, shape.channels


@export("cuArray3DGetDescriptor")
def cu_array_3d_get_descriptor(machine: Machine, description: int, array: int) -> None:
    what = structure_at(Array3DDescriptor, description)
    shape = machine.arrays.get(array).shape
    what.width, what.height, what.depth = shape.width, shape.height, shape.depth
    what.format, what.channels, what.flags = shape.format.code, shape.channels, shape.flags


@export("cuArrayGetPlane")
def cu_array_get_plane(machine: Machine, plane: int, array: int, index: int) -> None:
    need(plane)
    machine.arrays.get(array)
    raise DriverFailure(INVALID_VALUE, f"an array has no plane {index}")


@export("cuArrayGetMemoryRequirements")
def cu_array_get_memory_requirements(
    machine: Machine, requirements: int, array: int, device: int
) -> None:
    machine.device(device)
    _require(requirements, machine.arrays.get(array).shape.size_bytes)


@export("cuMipmappedArrayGetMemoryRequirements")
def cu_mipmapped_array_get_memory_requirements(
    machine: Machine, requirements: int, mipmap: int, device: int
) -> None:
    machine.device(device)
    _require(requirements, machine.arrays.mipmap(mipmap).allocation.size_bytes)


def _require(address: int, size_bytes: int) -> None:
    what = structure_at(MemoryRequirements, address)
    ctypes.memset(address, 0, ctypes.sizeof(MemoryRequirements))
    what.size, what.alignment = size_bytes, TEXTURE_ALIGNMENT


@export("cuArrayGetSparseProperties")
def cu_array_get_sparse_properties(machine: Machine, properties: int, array: int) -> None:
    need(properties)
    machine.arrays.get(array)
    raise DriverFailure(INVALID_VALUE, "the array is not sparse")


@export("cuMipmappedArrayGetSparseProperties")
def cu_mipmapped_array_get_sparse_properties(
    machine: Machine, properties: int, mipmap: int
) -> None:
    need(properties)
    machine.arrays.mipmap(mipmap)
    raise DriverFailure(INVALID_VALUE, "the array is not sparse")


@export("cuMipmappedArrayCreate")
def cu_mipmapped_array_create(machine: Machine, handle: int, description: int, levels: int) -> None:
    need(handle)
    made = machine.arrays.create_mipmapped(shape_3d_at(description), levels)
    put_u64(handle, made.handle)


@export("cuMipmappedArrayGetLevel")
def cu_mipmapped_array_get_level(machine: Machine, array: int, mipmap: int, level: int) -> None:
    need(array)
    put_u64(array, machine.arrays.level(mipmap, level).handle)


@export("cuMipmappedArrayDestroy")
def cu_mipmapped_array_destroy(machine: Machine, mipmap: int) -> None:
    machine.arrays.destroy_mipmapped(mipmap)


@export("cuDeviceGetTexture1DLinearMaxWidth")
def cu_device_get_texture_1d_linear_max_width(
    machine: Machine, width: int, code: int, channels: int, device: int
) -> None:
    need(width)
    machine.device(device)
    check_channels(channels)
    format_of(code)
    put_u64(width, _MOST_LINEAR)
