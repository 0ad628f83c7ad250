"""Cellar. Resources of texture and surface objects, and the sampling of textures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.textures.formats import Format, check_channels, format_of

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.textures.arrays import Shape

# CU_TRSF_*.
READ_AS_INTEGER: Final = 0x01
NORMALIZED_COORDINATES: Final = 0x02
SRGB: Final = 0x10
DISABLE_TRILINEAR: Final = 0x20
SEAMLESS_CUBEMAP: Final = 0x40
_KNOWN: Final = READ_AS_INTEGER | NORMALIZED_COORDINATES | SRGB | DISABLE_TRILINEAR
LINEAR_FILTER: Final = 1
_MODES: Final = range(4)


@unique
class Kind(IntEnum):
    """CUresourcetype."""

    ARRAY = 0
    MIPMAPPED = 1
    LINEAR = 2
    PITCHED = 3


@dataclass(frozen=True, slots=True)
class Resource:
    """CUDA_RESOURCE_DESC: a handle of an array, or memory with texels in one or several rows."""

    kind: Kind
    handle: int = 0
    address: int = 0
    format: int = 0
    channels: int = 0
    size_bytes: int = 0
    width: int = 0
    height: int = 0
    pitch: int = 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """CUDA_TEXTURE_DESC."""

    modes: tuple[int, int, int] = (1, 1, 1)
    filter: int = 0
    flags: int = 0
    most_anisotropy: int = 0
    level_filter: int = 0
    bias: float = 0.0
    least_level: float = 0.0
    most_level: float = 0.0
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    def check(self) -> None:
        """DriverFailure for invalid or unsupported settings."""
        if not all(mode in _MODES for mode in self.modes):
            raise DriverFailure(INVALID_VALUE, f"there is no address mode {max(self.modes)}")
        if self.filter not in (0, 1) or self.level_filter not in (0, 1):
            raise DriverFailure(INVALID_VALUE, "a filter mode is 0 (point) or 1 (linear)")
        if self.flags & SEAMLESS_CUBEMAP:
            raise DriverFailure(
                NOT_SUPPORTED, "filtering across the edges of cube maps is not modelled"
            )
        if self.flags & ~_KNOWN:
            raise DriverFailure(INVALID_VALUE, f"there are no flags {self.flags:#x}")


@dataclass(frozen=True, slots=True)
class View:
    """CUDA_RESOURCE_VIEW_DESC."""

    format: int = 0
    width: int = 0
    height: int = 0
    depth: int = 0
    first_level: int = 0
    last_level: int = 0
    first_layer: int = 0
    last_layer: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """One level: its address, and its lengths in texels and bytes."""

    address: int
    pitch: int
    slice_bytes: int
    width: int
    height: int
    depth: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class Texels:
    """The texels of an object: their format and their levels.

    `layers` is the number of layers or whole cubes, 0 if there are none.
    """

    format: Format
    channels: int
    levels: tuple[Picture, ...]
    layers: int
    is_cube: bool
    is_linear_memory: bool
    allocation: Allocation | None

    @property
    def texel_bytes(self) -> int:
        return self.format.size_bytes * self.channels


def picture_of(shape: Shape, address: int) -> Picture:
    """A level of an array."""
    return Picture(
        address,
        shape.pitch,
        shape.slice_bytes,
        shape.width,
        shape.rows,
        shape.slices,
        shape.row_bytes,
    )


# CUresourceViewFormat: three codes for each format, for 1, 2 and 4 channels, from 1 on.
_VIEWED: Final = (0x01, 0x08, 0x02, 0x09, 0x03, 0x0A, 0x10, 0x20)
_CHANNELS: Final = (1, 2, 4)


def viewed_format(code: int, like: Texels) -> tuple[Format, int]:
    """Format and channels of a view; its texels must have the size of the array's."""
    if not code:
        return like.format, like.channels
    if code > len(_VIEWED) * len(_CHANNELS):
        raise DriverFailure(NOT_SUPPORTED, f"views of format {code:#x} (compressed texels)")
    group, place = divmod(code - 1, len(_CHANNELS))
    found, channels = format_of(_VIEWED[group]), _CHANNELS[place]
    if found.size_bytes * channels != like.texel_bytes:
        raise DriverFailure(INVALID_VALUE, "a view needs texels of the same size as the array's")
    return found, channels


def memory_format(resource: Resource) -> tuple[Format, int]:
    """The format of texels in memory."""
    check_channels(resource.channels)
    return format_of(resource.format), resource.channels
