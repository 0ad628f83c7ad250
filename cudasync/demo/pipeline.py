"""The main program of the demo: it enhances a photograph, and is written as if it were serial.

Read it from top to bottom, the order in which it would run on one core. Nothing in it says what may
overlap, what must wait, or where a step runs. The engine derives this from the reads and writes of
each step.

The enhancement sharpens details near edges, and smooths the rest. So faces and lettering gain, and
grain in skies and shadows does not. Its structure is the image benchmark of GrCUDA's suite: three
blurs, two edge masks, an unsharp mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from cudasync.demo import filters
from cudasync.demo.settings import settings_for

if TYPE_CHECKING:
    from cudasync.demo.photo import Photo


@dataclass(frozen=True, slots=True)
class Enhanced:
    """A picture under way: both arrays and the file are complete once `file` is done."""

    original: np.ndarray
    pixels: np.ndarray
    file: cs.Op  # its result is the encoded file


def enhance(photo: Photo, format_name: str) -> Enhanced:
    """Push the whole enhancement of `photo`; returns at once."""
    shape = (photo.height, photo.width, 4)
    settings = settings_for(photo.width, photo.height)
    original = cs.pinned_empty(shape, np.uint8)
    pixels = cs.pinned_empty(shape, np.uint8)
    colour = cs.empty(shape, np.uint8)

    def decode() -> None:
        photo.decode(original)

    def encode() -> bytes:
        return photo.encode(pixels, format_name)

    cs.engine().push(decode, writes=[original], name="decode")
    cs.copy(colour, original)
    luma = filters.luma(colour)

    small = filters.gaussian_blur(luma, settings.small_weights)
    fine = filters.sobel(small)
    fine = filters.extend(fine, filters.least(fine), filters.greatest(fine), settings.fine_gain)

    large = filters.gaussian_blur(luma, settings.large_weights)
    broad = filters.sobel(large)
    broad = filters.extend(
        broad, filters.least(broad), filters.greatest(broad), settings.broad_gain
    )

    medium = filters.gaussian_blur(luma, settings.medium_weights)
    sharp = filters.unsharp(luma, medium, settings.amount)

    near_edges = filters.combine(sharp, luma, broad)
    enhanced = filters.combine(near_edges, small, fine)

    cs.copy(pixels, filters.recolour(colour, luma, enhanced))
    file = cs.engine().push(encode, reads=[pixels], name="encode")
    return Enhanced(original, pixels, file)
