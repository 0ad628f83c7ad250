"""Cellar. C structures that describe arrays."""

from __future__ import annotations

import ctypes

from cudasync.softgpu.abi.marshalling.pointers import structure_at
from cudasync.softgpu.core.textures.arrays import Shape, checked_shape

_size, _u32 = ctypes.c_size_t, ctypes.c_uint32


class ArrayDescriptor(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = (("width", _size), ("height", _size), ("format", _u32), ("channels", _u32))


class Array3DDescriptor(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = (
        ("width", _size),
        ("height", _size),
        ("depth", _size),
        ("format", _u32),
        ("channels", _u32),
        ("flags", _u32),
    )


class MemoryRequirements(ctypes.Structure):
    """CUDA_ARRAY_MEMORY_REQUIREMENTS."""

    _fields_ = (("size", _size), ("alignment", _size), ("reserved", _u32 * 4))


def shape_at(address: int) -> Shape:
    """The shape that a CUDA_ARRAY_DESCRIPTOR asks for."""
    what = structure_at(ArrayDescriptor, address)
    return checked_shape(what.width, what.height, 0, what.format, what.channels)


def shape_3d_at(address: int) -> Shape:
    """The shape that a CUDA_ARRAY3D_DESCRIPTOR asks for."""
    what = structure_at(Array3DDescriptor, address)
    return checked_shape(
        what.width, what.height, what.depth, what.format, what.channels, what.flags
    )
