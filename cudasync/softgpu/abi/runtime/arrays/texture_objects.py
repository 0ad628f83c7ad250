"""Cellar, abi. Runtime API, Texture Object Management and Surface Object Management."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.marshalling.pointers import need, put_u64, structure_at
from cudasync.softgpu.abi.runtime.arrays.channel_descriptors import (
    ChannelDescriptor,
    channels_of,
    describe_channels,
)
from cudasync.softgpu.abi.runtime.table import driver_function, forward, runtime_function
from cudasync.softgpu.abi.textures.object_structures import kind_of, view_at
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.textures.formats import format_of
from cudasync.softgpu.core.textures.resources import (
    DISABLE_TRILINEAR,
    LINEAR_FILTER,
    NORMALIZED_COORDINATES,
    READ_AS_INTEGER,
    SEAMLESS_CUBEMAP,
    SRGB,
    Kind,
    Resource,
    Sampling,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine
forward(
    """
    cudaGetTextureObjectResourceViewDesc pp cuTexObjectGetResourceViewDesc
    """
)

_INVALID_FILTER_SETTING: Final = 26
_INVALID_NORM_SETTING: Final = 27
# cudaTextureReadMode.
_READS_FRACTIONS: Final = 1

_size, _u32, _float = ctypes.c_size_t, ctypes.c_uint32, ctypes.c_float


class _Linear(ctypes.Structure):
    _fields_ = (("address", _size), ("channels", ChannelDescriptor), ("size", _size))


class _Pitched(ctypes.Structure):
    _fields_ = (
        ("address", _size),
        ("channels", ChannelDescriptor),
        ("width", _size),
        ("height", _size),
        ("pitch", _size),
    )


class _Of(ctypes.Union):
    # The last member gives the union the size that CUDA reserves.
    _fields_ = (("handle", _size), ("linear", _Linear), ("pitched", _Pitched))


class _Resource(ctypes.Structure):
    """cudaResourceDesc, the part that all versions have."""

    _fields_ = (("kind", _u32), ("of", _Of))


class _Texture(ctypes.Structure):
    """cudaTextureDesc."""

    _fields_ = (
        ("modes", _u32 * 3),
        ("filter", _u32),
        ("read_mode", _u32),
        ("srgb", ctypes.c_int),
        ("border", _float * 4),
        ("normalized", ctypes.c_int),
        ("most_anisotropy", _u32),
        ("level_filter", _u32),
        ("bias", _float),
        ("least_level", _float),
        ("most_level", _float),
        ("no_trilinear", ctypes.c_int),
        ("seamless", ctypes.c_int),
    )


_FLAGS: Final = (
    ("normalized", NORMALIZED_COORDINATES),
    ("srgb", SRGB),
    ("no_trilinear", DISABLE_TRILINEAR),
    ("seamless", SEAMLESS_CUBEMAP),
)


def _resource_at(address: int) -> Resource:
    what = structure_at(_Resource, address)
    kind = kind_of(what.kind)
    if kind is Kind.LINEAR:
        of = what.of.linear
        return Resource(kind, 0, of.address, *channels_of(of.channels), of.size)
    if kind is Kind.PITCHED:
        of = what.of.pitched
        sizes = of.width, of.height, of.pitch
        return Resource(kind, 0, of.address, *channels_of(of.channels), 0, *sizes)
    return Resource(kind, what.of.handle)


def _write_resource(address: int, resource: Resource) -> None:
    what = structure_at(_Resource, address)
    ctypes.memset(address, 0, ctypes.sizeof(what))
    what.kind = resource.kind
    if resource.kind in (Kind.ARRAY, Kind.MIPMAPPED):
        what.of.handle = resource.handle
        return
    of = what.of.linear if resource.kind is Kind.LINEAR else what.of.pitched
    of.address = resource.address
    describe_channels(of.channels, format_of(resource.format), resource.channels)
    if resource.kind is Kind.LINEAR:
        of.size = resource.size_bytes
    else:
        of.width, of.height, of.pitch = resource.width, resource.height, resource.pitch


def _sampling_at(address: int) -> Sampling:
    what = structure_at(_Texture, address)
    x, y, z = what.modes
    r, g, b, a = what.border
    flags = sum(flag for name, flag in _FLAGS if getattr(what, name))
    flags |= 0 if what.read_mode == _READS_FRACTIONS else READ_AS_INTEGER
    return Sampling(
        (x, y, z),
        what.filter,
        flags,
        what.most_anisotropy,
        what.level_filter,
        what.bias,
        what.least_level,
        what.most_level,
        (r, g, b, a),
    )


def _check(machine: Machine, resource: Resource, sampling: Sampling) -> None:
    """Refuse combinations for which the runtime has error codes of its own."""
    match resource.kind:
        case Kind.ARRAY:
            of = machine.arrays.copied(resource.handle).shape.format
        case Kind.MIPMAPPED:
            of = machine.arrays.mipmap(resource.handle).shape.format
        case _:
            of = format_of(resource.format)
    if of.is_float:
        return
    reads_integers = bool(sampling.flags & READ_AS_INTEGER)
    if not reads_integers and not of.can_be_normalised:
        raise DriverFailure(
            _INVALID_NORM_SETTING, "integers of 32 bits cannot be read as fractions"
        )
    if reads_integers and sampling.filter == LINEAR_FILTER:
        raise DriverFailure(
            _INVALID_FILTER_SETTING,
            "integers cannot be filtered: read them as fractions, or use point filtering",
        )


@runtime_function("cudaCreateTextureObject", "pppp")
def cuda_create_texture_object(
    machine: Machine, handle: int, resource: int, sampling: int, view: int
) -> None:
    need(handle)
    of, how = _resource_at(resource), _sampling_at(sampling)
    _check(machine, of, how)
    put_u64(handle, machine.objects.create_texture(of, how, view_at(view)))


@runtime_function("cudaDestroyTextureObject", "p")
def cuda_destroy_texture_object(machine: Machine, handle: int) -> Any:
    # As in CUDA, there is nothing to destroy for a null handle.
    return driver_function("cuTexObjectDestroy")(machine, handle) if handle else None


@runtime_function("cudaGetTextureObjectResourceDesc", "pp")
def cuda_get_texture_object_resource_desc(machine: Machine, resource: int, handle: int) -> None:
    _write_resource(resource, machine.objects.textures.get(handle).resource)


@runtime_function("cudaGetTextureObjectTextureDesc", "pp")
def cuda_get_texture_object_texture_desc(machine: Machine, sampling: int, handle: int) -> None:
    what = structure_at(_Texture, sampling)
    found = machine.objects.textures.get(handle).sampling
    ctypes.memset(sampling, 0, ctypes.sizeof(what))
    what.modes[:], what.border[:] = found.modes, found.border
    what.filter, what.level_filter = found.filter, found.level_filter
    what.read_mode = 0 if found.flags & READ_AS_INTEGER else _READS_FRACTIONS
    for name, flag in _FLAGS:
        setattr(what, name, int(bool(found.flags & flag)))
    what.most_anisotropy, what.bias = found.most_anisotropy, found.bias
    what.least_level, what.most_level = found.least_level, found.most_level


@runtime_function("cudaCreateSurfaceObject", "pp")
def cuda_create_surface_object(machine: Machine, handle: int, resource: int) -> None:
    need(handle)
    put_u64(handle, machine.objects.create_surface(_resource_at(resource)))


@runtime_function("cudaDestroySurfaceObject", "p")
def cuda_destroy_surface_object(machine: Machine, handle: int) -> Any:
    return driver_function("cuSurfObjectDestroy")(machine, handle) if handle else None


@runtime_function("cudaGetSurfaceObjectResourceDesc", "pp")
def cuda_get_surface_object_resource_desc(machine: Machine, resource: int, handle: int) -> None:
    _write_resource(resource, machine.objects.surfaces.get(handle).resource)
