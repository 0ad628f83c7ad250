"""The numbers of the enhancement: the widths of the blurs, the strength of the sharpening.

Widths grow with the picture, so that a large photo and a small copy of it look alike. They stop
growing at four times, because wider blurs would cost more than they show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Weights: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class Settings:
    """The common numbers of the pipeline and the NumPy reference."""

    small_weights: Weights  # removes noise from smooth parts of the picture
    medium_weights: Weights  # detail is finer than this blur, and is sharpened
    large_weights: Weights  # the edges of this blur are outlines of objects
    fine_gain: float = 8.0  # how soon an edge of the small blur counts as an edge
    broad_gain: float = 5.0  # the same for the large blur
    amount: float = 1.0  # of the unsharp mask


def settings_for(width: int, height: int) -> Settings:
    """The settings that suit a picture of this size in pixels."""
    scale = min(max(max(width, height) / 800.0, 1.0), 4.0)
    return Settings(gaussian(0.8 * scale), gaussian(1.6 * scale), gaussian(4.0 * scale))


def gaussian(sigma: float) -> Weights:
    """The weights of a Gaussian from -3 to +3 standard deviations; they sum to 1."""
    radius = math.ceil(3.0 * sigma)
    distance = np.arange(-radius, radius + 1) / sigma
    weights = np.exp(-0.5 * distance * distance)
    unit: Weights = (weights / weights.sum()).astype(np.float32)
    return unit
