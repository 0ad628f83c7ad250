"""Pictures for tests: small, with structure in every channel, in any size from 1 x 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from PIL import Image


def gradient(width: int, height: int) -> np.ndarray:
    """Three different slopes with a bright disc on them: (height, width, 3) uint8."""
    y, x = np.mgrid[0:height, 0:width]
    across, down = x / max(width - 1, 1), y / max(height - 1, 1)
    colours = np.stack([across, down, 1.0 - across * down], axis=-1)
    disc = (across - 0.4) ** 2 + (down - 0.6) ** 2 < 0.06
    return np.where(disc[..., np.newaxis], 250, colours * 200).astype(np.uint8)


def save(image: Image.Image, path: Path) -> Path:
    """Write `image` to `path` in the format of its suffix, and return the path."""
    image.save(path)
    return path
