"""Cellar. CUDA arrays: texels in rows, rows in slices, in memory that only the driver can name.

A GPU's layout is unspecified, so here arrays lie like images: rows begin `pitch` bytes apart,
slices `slice_bytes` apart. Layers and the faces of cubes are slices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.handles import new_handle
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.memory.box_copies import ARRAY, End
from cudasync.softgpu.core.textures.formats import check_channels, format_of

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.textures.formats import Format

# CUDA_ARRAY3D_*.
LAYERED: Final = 0x01
SURFACE_LDST: Final = 0x02
CUBEMAP: Final = 0x04
TEXTURE_GATHER: Final = 0x08
_COLOUR_ATTACHMENT: Final = 0x20
_KNOWN_FLAGS: Final = LAYERED | SURFACE_LDST | CUBEMAP | TEXTURE_GATHER | _COLOUR_ATTACHMENT
_FACES: Final = 6
# The longest single access: every row is aligned to it.
_ROW_ALIGNMENT: Final = 16
# The CUDA programming guide, "Technical Specifications per Compute Capability".
_MOST_1D: Final = 131_072
_MOST_2D: Final = (131_072, 65_536)
_MOST_3D: Final = 16_384
_MOST_LAYERED: Final = 32_768
_MOST_LAYERS: Final = 2_048


@dataclass(frozen=True, slots=True)
class Shape:
    """CUDA_ARRAY3D_DESCRIPTOR: a height or a depth of 0 stands for a missing dimension."""

    width: int
    height: int
    depth: int
    format: Format
    channels: int
    flags: int = 0

    @property
    def texel_bytes(self) -> int:
        return self.format.size_bytes * self.channels

    @property
    def row_bytes(self) -> int:
        return self.width * self.texel_bytes

    @property
    def pitch(self) -> int:
        return -(-self.row_bytes // _ROW_ALIGNMENT) * _ROW_ALIGNMENT

    @property
    def rows(self) -> int:
        return max(1, self.height)

    @property
    def slices(self) -> int:
        return max(1, self.depth)

    @property
    def slice_bytes(self) -> int:
        return self.pitch * self.rows

    @property
    def size_bytes(self) -> int:
        return self.slice_bytes * self.slices

    @property
    def is_layered(self) -> bool:
        return bool(self.flags & LAYERED)

    @property
    def is_cubemap(self) -> bool:
        return bool(self.flags & CUBEMAP)

    @property
    def has_layers(self) -> bool:
        """Whether its slices are layers or faces, which are selected and not filtered."""
        return self.is_layered or self.is_cubemap

    def level(self, number: int) -> Shape:
        """The shape of a level of a mipmapped array: each is half of the previous one."""

        def halved(length: int) -> int:
            return max(1, length >> number) if length else 0

        depth = self.depth if self.has_layers else halved(self.depth)
        return replace(self, width=halved(self.width), height=halved(self.height), depth=depth)

    @property
    def most_levels(self) -> int:
        longest = max(self.width, self.height, 0 if self.has_layers else self.depth)
        return longest.bit_length()


def checked_shape(
    width: int, height: int, depth: int, code: int, channels: int, flags: int = 0
) -> Shape:
    """The shape of a new array; DriverFailure if it is not allowed."""
    check_channels(channels)
    shape = Shape(width, height, depth, format_of(code), channels, flags)
    if flags & ~_KNOWN_FLAGS:
        raise DriverFailure(NOT_SUPPORTED, f"arrays with the flags {flags:#x} are not modelled")
    if not width:
        raise DriverFailure(INVALID_VALUE, "an array needs a width of at least 1")
    problem = _problem_of_layers(shape) if shape.has_layers else _problem_of_size(shape)
    if problem:
        raise DriverFailure(INVALID_VALUE, f"{width} x {height} x {depth}: {problem}")
    return shape


def _problem_of_size(shape: Shape) -> str:
    width, height, depth = shape.width, shape.height, shape.depth
    if depth and not height:
        return "an array with a depth needs a height"
    if depth:
        return (
            "" if max(width, height, depth) <= _MOST_3D else f"at most {_MOST_3D} in each dimension"
        )
    if height:
        fits = width <= _MOST_2D[0] and height <= _MOST_2D[1]
        return "" if fits else f"at most {_MOST_2D[0]} x {_MOST_2D[1]}"
    return "" if width <= _MOST_1D else f"at most {_MOST_1D}"


def _problem_of_layers(shape: Shape) -> str:
    if shape.is_cubemap:
        if shape.width != shape.height:
            return "the width and height of a cube map must be equal"
        if shape.depth % _FACES or not (shape.is_layered or shape.depth == _FACES):
            return "a cube map needs a depth of 6, or a multiple of 6 if layered"
    if not 0 < shape.depth <= _MOST_LAYERS:
        return f"an array has 1 to {_MOST_LAYERS} layers"
    is_long = max(shape.width, shape.height) > _MOST_LAYERED
    return f"a layer has at most {_MOST_LAYERED} x {_MOST_LAYERED} texels" if is_long else ""


@dataclass(slots=True, eq=False)
class Array:
    """An array, or a level of a mipmapped array, which ends with that array."""

    handle: int
    shape: Shape
    allocation: Allocation
    address: int
    mipmap: MipmappedArray | None = None

    def end(self, x_bytes: int = 0, y: int = 0, z: int = 0) -> End:
        """The end of a copy that begins at a byte of a row."""
        shape = self.shape
        return End(
            ARRAY,
            self.address,
            x_bytes,
            y,
            z,
            shape.pitch,
            shape.rows,
            array=self.handle,
            bounds=(shape.row_bytes, shape.rows, shape.slices),
        )


@dataclass(slots=True, eq=False)
class MipmappedArray:
    """An array of levels, in one allocation."""

    handle: int
    shape: Shape
    allocation: Allocation
    levels: list[Array]


def levels_of(shape: Shape, count: int) -> list[tuple[Shape, int]]:
    """The shape of each level, and its offset in the allocation."""
    if not 0 < count <= shape.most_levels:
        raise DriverFailure(
            INVALID_VALUE, f"there are 1 to {shape.most_levels} levels of that, not {count}"
        )
    found, start = [], 0
    for number in range(count):
        level = shape.level(number)
        found.append((level, start))
        start += level.size_bytes
    return found


def mipmapped(shape: Shape, parts: list[tuple[Shape, int]], memory: Allocation) -> MipmappedArray:
    """A mipmapped array of these levels, each with its own handle."""
    made = MipmappedArray(new_handle(), shape, memory, [])
    for level, start in parts:
        made.levels.append(Array(new_handle(), level, memory, memory.start + start, made))
    return made
