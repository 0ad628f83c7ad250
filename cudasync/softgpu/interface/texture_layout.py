"""Cellar. What a texture or surface object is in memory: known to who writes it and who reads it.

A handle is the address of its object, which lies in memory of the device: so an access that is
checked checks the handle, too. An object is a header, a record for each level, and for sRGB a table
of 256 floats. Fields are words of 32 bits but for addresses and lengths in bytes.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

TEXTURE: Final = 0x7E87_0B1E_C75A_11FE
SURFACE: Final = 0x5AFA_CE0B_1EC7_5AFE
ENDED: Final = 0
"""In the place of either: what the object is of has gone before it."""


@unique
class Field(IntEnum):
    """Where the fields of the header are."""

    KIND = 0
    BASE = 8
    TEXEL_BYTES = 16
    CHANNELS = 20
    DECODING = 24
    # By how much a channel is moved up and down again, so that its sign fills the word.
    SHIFT = 28
    CHANNEL_BYTES = 32
    # A float: what reads as 1.0 where integers are read as fractions.
    LARGEST = 36
    IS_LINEAR = 40
    IS_NORMALISED = 44
    # Of x, y, z: CUaddress_mode.
    MODE = 48
    LAST_LEVEL = 60
    BLENDS_LEVELS = 64
    BIAS = 68
    LEAST_LEVEL = 72
    MOST_LEVEL = 76
    # Four words, as a fetch gives them.
    BORDER = 80
    SRGB = 96
    # Layers, or cubes of six of them.
    LAYERS = 104
    # What a channel reads as 1, where there is none.
    ONE = 108
    # What `txq.array_size` gives: 0 where there are no layers.
    ARRAY_SIZE = 112
    LEVELS = 128


@unique
class Level(IntEnum):
    """Where the fields of a level are, from where it begins."""

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
    """What becomes of a channel's bits."""

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
