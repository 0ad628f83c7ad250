"""Cellar. The bytes of texture and surface objects, as kernels read them (`texture_layout`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.textures.resources import (
    LINEAR_FILTER,
    NORMALIZED_COORDINATES,
    READ_AS_INTEGER,
    SRGB,
    Resource,
    Sampling,
    Texels,
    View,
)
from cudasync.softgpu.interface.texture_layout import SURFACE, TEXTURE, Decoding, Field, Level, Mode

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.allocation_table import Allocation

_ONE: Final = 0x3F80_0000


@dataclass(slots=True, eq=False)
class TextureObject:
    """A texture object."""

    allocation: Allocation
    texels: Texels
    resource: Resource
    sampling: Sampling
    view: View | None


@dataclass(slots=True, eq=False)
class SurfaceObject:
    """A surface object."""

    allocation: Allocation
    texels: Texels
    resource: Resource


def texture_bytes(texels: Texels, sampling: Sampling, address: int) -> bytes:
    """The bytes of a texture object at `address`; DriverFailure for an impossible sampling."""
    decoding = _decoding(texels, sampling)
    data = _header(texels, TEXTURE)
    reads_integers = decoding is Decoding.AS_IT_IS and not texels.format.is_float
    is_linear = sampling.filter == LINEAR_FILTER and not texels.is_linear_memory
    if reads_integers and (is_linear or sampling.level_filter == LINEAR_FILTER):
        raise DriverFailure(
            INVALID_VALUE,
            "integers cannot be filtered: read them as fractions, or use point filtering",
        )
    is_normalised = bool(sampling.flags & NORMALIZED_COORDINATES)
    if len(texels.levels) > 1 and not is_normalised:
        raise DriverFailure(INVALID_VALUE, "mipmap levels need normalised coordinates")
    _put(data, "<I", Field.DECODING, decoding)
    _put(data, "<I", Field.IS_LINEAR, is_linear)
    _put(data, "<I", Field.IS_NORMALISED, is_normalised or texels.is_cube)
    _put(data, "<3I", Field.MODE, *_modes(texels, sampling, is_normalised=is_normalised))
    _put(data, "<I", Field.BLENDS_LEVELS, sampling.level_filter)
    _put(data, "<f", Field.BIAS, sampling.bias)
    _put(data, "<2f", Field.LEAST_LEVEL, sampling.least_level, sampling.most_level)
    _put(data, "<I", Field.ONE, 1 if reads_integers else _ONE)
    border = (0.0,) * 4 if texels.is_linear_memory else sampling.border
    if reads_integers:
        _put(data, "<4I", Field.BORDER, *(int(each) & 0xFFFF_FFFF for each in border))
    else:
        _put(data, "<4f", Field.BORDER, *border)
    if decoding is Decoding.SRGB:
        _put(data, "<Q", Field.SRGB, address + len(data))
        data += _srgb()
    return bytes(data)


def surface_bytes(texels: Texels) -> bytes:
    """The bytes of a surface object."""
    return bytes(_header(texels, SURFACE))


def _header(texels: Texels, kind: int) -> bytearray:
    data = bytearray(Field.LEVELS + Level.SIZE * len(texels.levels))
    first, of = texels.levels[0], texels.format
    _put(data, "<2Q", Field.KIND, kind, first.address)
    _put(data, "<2I", Field.TEXEL_BYTES, texels.texel_bytes, texels.channels)
    shift = 32 - 8 * of.size_bytes if of.is_signed and not of.is_float else 0
    _put(data, "<2I", Field.SHIFT, shift, of.size_bytes)
    _put(data, "<f", Field.LARGEST, float(of.largest))
    _put(data, "<I", Field.LAST_LEVEL, len(texels.levels) - 1)
    _put(data, "<I", Field.LAYERS, max(1, texels.layers))
    _put(data, "<I", Field.ARRAY_SIZE, texels.layers)
    for number, each in enumerate(texels.levels):
        start = Field.LEVELS + Level.SIZE * number
        _put(data, "<3Q", start, each.address, each.pitch, each.slice_bytes)
        sizes = each.width, each.height, each.depth, each.row_bytes
        _put(data, "<4I", start + Level.WIDTH, *sizes)
    return data


def _put(data: bytearray, form: str, place: int, *values: float) -> None:
    struct.pack_into(form, data, place, *values)


def _decoding(texels: Texels, sampling: Sampling) -> Decoding:
    of = texels.format
    if of.is_float:
        return Decoding.HALF if of.size_bytes == 2 else Decoding.AS_IT_IS
    if sampling.flags & READ_AS_INTEGER or not of.can_be_normalised:
        return Decoding.AS_IT_IS
    is_srgb = sampling.flags & SRGB and of.size_bytes == 1 and not of.is_signed
    return Decoding.SRGB if is_srgb else Decoding.FRACTION


def _modes(texels: Texels, sampling: Sampling, *, is_normalised: bool) -> tuple[int, ...]:
    """The address modes, as in the guide: unnormalised coordinates never wrap or mirror."""
    if texels.is_linear_memory:
        return (Mode.BORDER,) * 3
    if texels.is_cube:
        return (Mode.CLAMP,) * 3
    turns = (Mode.WRAP, Mode.MIRROR)
    return tuple(
        Mode.CLAMP if mode in turns and not is_normalised else mode for mode in sampling.modes
    )


@cache
def _srgb() -> bytes:
    """The linear value of each sRGB byte, by IEC 61966-2-1."""

    def linear(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    return struct.pack("<256f", *(linear(byte / 255) for byte in range(256)))
