"""Cellar. C structures that describe the resource of an object, and how a texture is read."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import structure_at
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.textures.resources import Kind, Resource, Sampling, View

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_size, _u32, _u64 = ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64


class _Linear(ctypes.Structure):
    _fields_ = (("address", _u64), ("format", _u32), ("channels", _u32), ("size", _size))


class _Pitched(ctypes.Structure):
    _fields_ = (
        ("address", _u64),
        ("format", _u32),
        ("channels", _u32),
        ("width", _size),
        ("height", _size),
        ("pitch", _size),
    )


class _Of(ctypes.Union):
    _fields_ = (
        ("handle", _size),
        ("linear", _Linear),
        ("pitched", _Pitched),
        ("reserved", ctypes.c_int * 32),
    )


class ResourceDescription(ctypes.Structure):
    """CUDA_RESOURCE_DESC."""

    _fields_ = (("kind", _u32), ("of", _Of), ("flags", _u32))


class TextureDescription(ctypes.Structure):
    """CUDA_TEXTURE_DESC."""

    _fields_ = (
        ("modes", _u32 * 3),
        ("filter", _u32),
        ("flags", _u32),
        ("most_anisotropy", _u32),
        ("level_filter", _u32),
        ("bias", ctypes.c_float),
        ("least_level", ctypes.c_float),
        ("most_level", ctypes.c_float),
        ("border", ctypes.c_float * 4),
        ("reserved", ctypes.c_int * 12),
    )


class ViewDescription(ctypes.Structure):
    """CUDA_RESOURCE_VIEW_DESC; cudaResourceViewDesc is the same."""

    _fields_ = (
        ("format", _u32),
        ("width", _size),
        ("height", _size),
        ("depth", _size),
        ("first_level", _u32),
        ("last_level", _u32),
        ("first_layer", _u32),
        ("last_layer", _u32),
        ("reserved", _u32 * 16),
    )


def kind_of(number: int) -> Kind:
    """The kind of resource; INVALID_VALUE if the number is unknown."""
    if number not in list(Kind):
        raise DriverFailure(INVALID_VALUE, f"there is no resource type {number}")
    return Kind(number)


def resource_at(address: int) -> Resource:
    """The resource that a CUDA_RESOURCE_DESC describes."""
    what = structure_at(ResourceDescription, address)
    kind = kind_of(what.kind)
    if kind is Kind.LINEAR:
        of = what.of.linear
        return Resource(kind, 0, of.address, of.format, of.channels, of.size)
    if kind is Kind.PITCHED:
        of = what.of.pitched
        sizes = of.width, of.height, of.pitch
        return Resource(kind, 0, of.address, of.format, of.channels, 0, *sizes)
    return Resource(kind, what.of.handle)


def write_resource(address: int, resource: Resource) -> None:
    """Write a CUDA_RESOURCE_DESC: the inverse of `resource_at`."""
    what = structure_at(ResourceDescription, address)
    ctypes.memset(address, 0, ctypes.sizeof(what))
    what.kind = resource.kind
    if resource.kind is Kind.LINEAR:
        what.of.linear = _Linear(
            resource.address, resource.format, resource.channels, resource.size_bytes
        )
    elif resource.kind is Kind.PITCHED:
        what.of.pitched = _Pitched(
            resource.address,
            resource.format,
            resource.channels,
            resource.width,
            resource.height,
            resource.pitch,
        )
    else:
        what.of.handle = resource.handle


def sampling_at(address: int) -> Sampling:
    """The sampling that a CUDA_TEXTURE_DESC describes."""
    what = structure_at(TextureDescription, address)
    x, y, z = what.modes
    r, g, b, a = what.border
    return Sampling(
        (x, y, z),
        what.filter,
        what.flags,
        what.most_anisotropy,
        what.level_filter,
        what.bias,
        what.least_level,
        what.most_level,
        (r, g, b, a),
    )


def write_sampling(address: int, sampling: Sampling) -> None:
    """Write a CUDA_TEXTURE_DESC: the inverse of `sampling_at`."""
    what = structure_at(TextureDescription, address)
    ctypes.memset(address, 0, ctypes.sizeof(what))
    what.modes[:], what.border[:] = sampling.modes, sampling.border
    what.filter, what.flags = sampling.filter, sampling.flags
    what.most_anisotropy, what.level_filter = sampling.most_anisotropy, sampling.level_filter
    what.bias = sampling.bias
    what.least_level, what.most_level = sampling.least_level, sampling.most_level


_VIEW = tuple(name for name, _ in ViewDescription._fields_ if name != "reserved")


def view_at(address: int) -> View | None:
    """The view that a CUDA_RESOURCE_VIEW_DESC describes; None for null."""
    if not address:
        return None
    what = structure_at(ViewDescription, address)
    return View(*(getattr(what, name) for name in _VIEW))


def write_view(address: int, view: View) -> None:
    """Write a CUDA_RESOURCE_VIEW_DESC: the inverse of `view_at`."""
    what = structure_at(ViewDescription, address)
    ctypes.memset(address, 0, ctypes.sizeof(what))
    for name in _VIEW:
        setattr(what, name, getattr(view, name))


def view_of(machine: Machine, handle: int) -> View:
    """The view that a texture was made with; INVALID_VALUE if there was none."""
    view = machine.objects.textures.get(handle).view
    if view is None:
        raise DriverFailure(INVALID_VALUE, "the texture was created without a view")
    return view
