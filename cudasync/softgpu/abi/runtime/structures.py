"""Cellar, abi. The runtime API's own structures, and arguments that it passes by value."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.marshalling.node_structures import CopyParams
from cudasync.softgpu.abi.marshalling.structures_by_value import by_value
from cudasync.softgpu.abi.runtime.table import runtime_function
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine

_size = ctypes.c_size_t
_ARRAY: Final = 3
_UNIFIED: Final = 4


class PitchedPointer(ctypes.Structure):
    """cudaPitchedPtr."""

    _fields_ = (("address", _size), ("pitch", _size), ("width", _size), ("height", _size))


class Extent(ctypes.Structure):
    """cudaExtent, and cudaPos."""

    _fields_ = (("width", _size), ("height", _size), ("depth", _size))


class _Side(ctypes.Structure):
    """One side of cudaMemcpy3DParms."""

    _fields_ = (("array", _size), ("at", Extent), ("pointer", PitchedPointer))


class Copy3D(ctypes.Structure):
    """cudaMemcpy3DParms."""

    _fields_ = (("source", _Side), ("target", _Side), ("extent", Extent), ("kind", ctypes.c_int))


class PeerCopy3D(ctypes.Structure):
    """cudaMemcpy3DPeerParms."""

    _fields_ = (
        ("source", _Side),
        ("source_device", ctypes.c_int),
        ("target", _Side),
        ("target_device", ctypes.c_int),
        ("extent", Extent),
    )


def driver_copy(machine: Machine, copy: Copy3D) -> CopyParams:
    """The same copy as the driver describes it; the addresses decide the direction.

    If an end is an array, lengths and places in that array are in texels. Otherwise they are in
    bytes.
    """
    made = CopyParams()
    texel_bytes = _texel_bytes(machine, copy.source.array, copy.target.array)
    for side, end in ((copy.source, made.source), (copy.target, made.target)):
        end.x_bytes, end.y, end.z = side.at.width, side.at.height, side.at.depth
        if side.array:
            end.kind, end.array = _ARRAY, side.array
            end.x_bytes *= texel_bytes
            continue
        end.kind = _UNIFIED
        end.device = side.pointer.address
        end.pitch, end.height = side.pointer.pitch, side.pointer.height
    made.width = copy.extent.width * texel_bytes
    made.height, made.depth = copy.extent.height, copy.extent.depth
    return made


def _texel_bytes(machine: Machine, *arrays: int) -> int:
    sizes = {machine.arrays.copied(each).shape.texel_bytes for each in arrays if each}
    if len(sizes) > 1:
        raise DriverFailure(INVALID_VALUE, "the arrays must have texels of one size")
    return sizes.pop() if sizes else 1


def linear_copy(target: int, source: int, size_bytes: int) -> CopyParams:
    """A copy of `size_bytes` bytes, as the driver describes boxes."""
    made = CopyParams()
    made.width, made.height, made.depth = size_bytes, 1, 1
    for end, address in ((made.source, source), (made.target, target)):
        end.kind, end.device, end.pitch, end.height = _UNIFIED, address, size_bytes, 1
    return made


def write_copy(machine: Machine, params: CopyParams, copy: Copy3D) -> None:
    """Write a copy of the driver's as the runtime describes it."""
    ctypes.memset(ctypes.addressof(copy), 0, ctypes.sizeof(copy))
    arrays = [end.array for end in (params.source, params.target) if end.kind == _ARRAY]
    texel_bytes = _texel_bytes(machine, *arrays)
    for end, side in ((params.source, copy.source), (params.target, copy.target)):
        if end.kind == _ARRAY:
            side.array = end.array
            side.at = Extent(end.x_bytes // texel_bytes, end.y, end.z)
            continue
        side.at = Extent(end.x_bytes, end.y, end.z)
        address = end.host if end.kind == 1 else end.device
        side.pointer = PitchedPointer(address, end.pitch, params.width, end.height)
    copy.extent = Extent(params.width // texel_bytes, params.height, params.depth)
    copy.kind = 4  # cudaMemcpyDefault.


def with_structures(name: str, kinds: str, *structures: type[Any]) -> Callable[[Any], Any]:
    """Enter a function that takes structures by value: an S stands for each."""
    c_arguments, decorate = by_value(kinds, *structures)
    enter = runtime_function(name, kinds, c_arguments=c_arguments)
    return lambda call: enter(decorate(call))
