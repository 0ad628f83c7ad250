"""The same enhancement in NumPy, double precision, as the reference for the kernels.

It is written from the definition of each filter, not from the kernels, and without the engine. So
the two do not share a mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from cudasync.demo.settings import Settings

Plane: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

# ITU-R BT.601.
_LUMA = np.array([0.299, 0.587, 0.114])


def enhance_reference(pixels: np.ndarray, settings: Settings) -> np.ndarray:
    """`pixels`, (height, width, 4) uint8, enhanced like the pipeline."""
    colour = pixels[..., :3].astype(np.float64)
    luma = (colour @ _LUMA) / 255.0
    small = _blur(luma, settings.small_weights)
    large = _blur(luma, settings.large_weights)
    medium = _blur(luma, settings.medium_weights)
    fine_edges = _stretch(_gradient(small), settings.fine_gain)
    broad_edges = _stretch(_gradient(large), settings.broad_gain)
    sharp = np.clip(luma + settings.amount * (luma - medium), 0.0, 1.0)
    near_edges = broad_edges * sharp + (1.0 - broad_edges) * luma
    enhanced = fine_edges * near_edges + (1.0 - fine_edges) * small
    colour += 255.0 * (enhanced - luma)[..., np.newaxis]
    result = pixels.copy()
    result[..., :3] = np.clip(np.rint(colour), 0.0, 255.0).astype(np.uint8)
    return result


def _blur(plane: Plane, weights: np.ndarray) -> Plane:
    along_rows = _along_rows(plane, weights)
    return _along_rows(along_rows.T, weights).T


def _along_rows(plane: Plane, weights: np.ndarray) -> Plane:
    """Each row's weighted means; its first and last values continue beyond the ends."""
    radius = len(weights) // 2
    padded = np.pad(plane, ((0, 0), (radius, radius)), mode="edge")
    exact = weights.astype(np.float64)
    return np.stack([np.correlate(row, exact, mode="valid") for row in padded])


def _gradient(plane: Plane) -> Plane:
    """The length of Sobel's gradient: a difference one way, a 1-2-1 mean the other way."""
    padded = np.pad(plane, 1, mode="edge")
    across = padded[:, 2:] - padded[:, :-2]
    down = padded[2:, :] - padded[:-2, :]
    horizontal = across[:-2] + 2.0 * across[1:-1] + across[2:]
    vertical = down[:, :-2] + 2.0 * down[:, 1:-1] + down[:, 2:]
    return np.hypot(horizontal, vertical)


def _stretch(plane: Plane, gain: float) -> Plane:
    low, high = plane.min(), plane.max()
    if not high > low:
        return np.zeros_like(plane)
    stretched: Plane = np.clip(gain * (plane - low) / (high - low), 0.0, 1.0)
    return stretched
