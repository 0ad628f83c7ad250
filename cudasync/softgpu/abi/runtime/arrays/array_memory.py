"""Cellar, abi. Runtime API, Memory Management: arrays, and descriptions of their texels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.softgpu.abi.marshalling.pointers import need, offer_u32, put_u64, structure_at
from cudasync.softgpu.abi.runtime.arrays.channel_descriptors import (
    ChannelDescriptor,
    channels_of,
    describe_channels,
)
from cudasync.softgpu.abi.runtime.structures import Extent, with_structures
from cudasync.softgpu.abi.runtime.table import driver_function, forward, runtime_function
from cudasync.softgpu.core.textures.arrays import Shape, checked_shape

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

forward(
    """
    cudaArrayGetMemoryRequirements ppi
    cudaArrayGetPlane ppu
    cudaArrayGetSparseProperties pp
    cudaGetMipmappedArrayLevel ppu cuMipmappedArrayGetLevel
    """
)


def created_array(
    machine: Machine, descriptor: int, extent: tuple[int, int, int], flags: int
) -> int:
    """The handle of a new array of (width, height, depth) texels, described at `descriptor`."""
    return machine.arrays.create(_shape(descriptor, *extent, flags)).handle


def _shape(descriptor: int, width: int, height: int, depth: int, flags: int) -> Shape:
    code, channels = channels_of(structure_at(ChannelDescriptor, descriptor))
    return checked_shape(width, height, depth, code, channels, flags)


@runtime_function("cudaMallocArray", "ppzzu")
def cuda_malloc_array(
    machine: Machine, handle: int, descriptor: int, width: int, height: int, flags: int
) -> None:
    need(handle)
    put_u64(handle, created_array(machine, descriptor, (width, height, 0), flags))


@with_structures("cudaMalloc3DArray", "ppSu", Extent)
def cuda_malloc_3d_array(
    machine: Machine, extent: Extent, handle: int, descriptor: int, flags: int
) -> None:
    need(handle)
    sizes = extent.width, extent.height, extent.depth
    put_u64(handle, created_array(machine, descriptor, sizes, flags))


@with_structures("cudaMallocMipmappedArray", "ppSuu", Extent)
def cuda_malloc_mipmapped_array(
    machine: Machine, extent: Extent, handle: int, descriptor: int, levels: int, flags: int
) -> None:
    need(handle)
    shape = _shape(descriptor, extent.width, extent.height, extent.depth, flags)
    put_u64(handle, machine.arrays.create_mipmapped(shape, levels).handle)


@runtime_function("cudaFreeArray", "p")
def cuda_free_array(machine: Machine, array: int) -> Any:
    return driver_function("cuArrayDestroy")(machine, array) if array else None


@runtime_function("cudaFreeMipmappedArray", "p")
def cuda_free_mipmapped_array(machine: Machine, mipmap: int) -> Any:
    return driver_function("cuMipmappedArrayDestroy")(machine, mipmap) if mipmap else None


@runtime_function("cudaGetChannelDesc", "pp")
def cuda_get_channel_desc(machine: Machine, descriptor: int, array: int) -> None:
    shape = machine.arrays.get(array).shape
    describe_channels(structure_at(ChannelDescriptor, descriptor), shape.format, shape.channels)


@runtime_function("cudaArrayGetInfo", "pppp")
def cuda_array_get_info(
    machine: Machine, descriptor: int, extent: int, flags: int, array: int
) -> None:
    shape = machine.arrays.get(array).shape
    if descriptor:
        what = structure_at(ChannelDescriptor, descriptor)
        describe_channels(what, shape.format, shape.channels)
    if extent:
        size = structure_at(Extent, extent)
        size.width, size.height, size.depth = shape.width, shape.height, shape.depth
    offer_u32(flags, shape.flags)


@runtime_function("cudaDeviceGetTexture1DLinearMaxWidth", "ppi")
def cuda_device_get_texture_1d_linear_max_width(
    machine: Machine, width: int, descriptor: int, device: int
) -> Any:
    code, channels = channels_of(structure_at(ChannelDescriptor, descriptor))
    call = driver_function("cuDeviceGetTexture1DLinearMaxWidth")
    return call(machine, width, code, channels, device)
