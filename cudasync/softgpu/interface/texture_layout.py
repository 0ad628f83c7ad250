"""Cellar. The memory layout of texture and surface objects, for writer and reader.

A handle is the address of its object in device memory, so a checked access also checks the handle.
An object is a header, a record for each level, and for sRGB a table of 256 floats. Fields are words
of 32 bits, except for addresses and lengths in bytes.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

TEXTURE: Final = 0x7E87_0B1E_C75A_11FE
SURFACE: Final = 0x5AFA_CE0B_1EC7_5AFE
ENDED: Final = 0
"""Replaces either: the object's array or memory was freed before the object."""


@unique
class Field(IntEnum):
    """The offsets of the header's fields."""

    KIND = 0
    BASE = 8
    TEXEL_BYTES = 16
    CHANNELS = 20
    DECODING = 24
    # The bits by which a channel is shifted left and right again, to extend its sign.
    SHIFT = 28
    CHANNEL_BYTES = 32
    # A float: the integer that reads as 1.0, if integers are read as fractions.
    LARGEST = 36
    IS_LINEAR = 40
    IS_NORMALISED = 44
    # The CUaddress_mode of x, y, z.
    MODE = 48
    LAST_LEVEL = 60
    BLENDS_LEVELS = 64
    BIAS = 68
    LEAST_LEVEL = 72
    MOST_LEVEL = 76
    # Four words, in the form that a fetch returns.
    BORDER = 80
    SRGB = 96
    # The number of layers, or of cubes with six faces.
    LAYERS = 104
    # The bits that a missing fourth channel reads as: 1.
    ONE = 108
    # The result of `txq.array_size`: 0 without layers.
    ARRAY_SIZE = 112
    LEVELS = 128


@unique
class Level(IntEnum):
    """The offsets of a level's fields, from its start."""

    BASE = 0
    PITCH = 8
    SLICE = 16
    WIDTH = 24
    HEIGHT = 28
    DEPTH = 32
    ROW_BYTES = 36
    SIZE = 48


@unique
class Decoding(IntEnum):
    """The conversion of a channel's bits."""

    AS_IT_IS = 0
    FRACTION = 1
    HALF = 2
    SRGB = 3


@unique
class Mode(IntEnum):
    """CUaddress_mode."""

    WRAP = 0
    CLAMP = 1
    MIRROR = 2
    BORDER = 3
