"""Texture fetches in NumPy, by the formulas of the CUDA programming guide.

All functions handle many points at once: coordinates are vectors, and a fetch gives (points, 4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import numpy as np

WRAP, CLAMP, MIRROR, BORDER = range(4)
F = np.float32


@dataclass
class Texture:
    """`levels` hold raw texels: (slices, rows, width, channels). Modes are listed by axis, x
    first."""

    levels: list[np.ndarray]
    modes: tuple[int, int, int] = (CLAMP, CLAMP, CLAMP)
    is_linear: bool = False
    is_normalised: bool = False
    reads_integers: bool = False
    is_srgb: bool = False
    border: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    blends_levels: bool = False
    bias: float = 0.0
    clamps: tuple[float, float] = (0.0, 0.0)
    is_cube: bool = False
    _decoded: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self):
        self._decoded = [self._decode(level) for level in self.levels]

    @property
    def gives_integers(self):
        of = self.levels[0].dtype
        return of.kind in "iu" and (self.reads_integers or of.itemsize == 4)

    def _decode(self, raw):
        """The fetched values of all texels, as (slices, rows, width, 4)."""
        channels, of = raw.shape[-1], raw.dtype
        if self.gives_integers:
            found, one = raw.astype(np.int64).astype(np.uint32).view(np.int32), 1
        elif of.kind == "f":
            found, one = raw.astype(F), F(1)
        else:
            found = np.maximum(raw.astype(F) / F(np.iinfo(of).max), F(-1))
            one = F(1)
            if self.is_srgb:
                colours = raw[..., :3] / 255.0
                low, high = colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4
                found[..., :3] = np.where(colours <= 0.04045, low, high).astype(F)
        whole = np.zeros((*raw.shape[:-1], 4), found.dtype)
        whole[..., 3] = one
        whole[..., :channels] = found
        return whole

    # Places

    def _axis(self, at, size, mode):
        """The coordinate along one axis, wrapped or mirrored, in texels."""
        at = at.astype(F)
        if self.is_normalised or self.is_cube:
            if mode == WRAP:
                at = at - np.floor(at)
            elif mode == MIRROR:
                rest = at - np.floor(at)
                at = np.where(np.floor(at) % 2 == 1, F(1) - rest, rest)
            at = at * F(size)
        return at

    def _indices(self, at, size, mode, *, is_linear):
        """(first, second, weight) of the texels around `at`, which is in texels."""
        if is_linear:
            at = at - F(0.5)
        # A NaN coordinate lies beyond the texture. This is our choice; the guide has no formula.
        at = np.clip(np.where(np.isnan(at), F(np.inf), at), F(-(2**24)), F(2**24))
        first = np.floor(at)
        weight = (np.rint((at - first) * F(256)) / F(256)).astype(F)
        first = first.astype(np.int64)
        return self._inside(first, size, mode), self._inside(first + 1, size, mode), weight

    def _inside(self, index, size, mode):
        is_out = (index < 0) | (index >= size)
        if mode == WRAP and (self.is_normalised or self.is_cube):
            # The coordinate was wrapped already, so a neighbour is at most one texture size away.
            around = np.where(index < 0, index + size, index - size)
            index = np.where(is_out, around, index)
        found = np.clip(index, 0, size - 1)
        return np.where(is_out, -1, found) if mode == BORDER else found

    def _texels(self, level, indices):
        """Texels at (x, y, z) indices."""
        x, y, z = indices
        is_out = (x < 0) | (y < 0) | (z < 0)
        found = self._decoded[level][z, y, x]
        border = np.array(self.border)
        return np.where(is_out[:, None], border.astype(found.dtype), found)

    # Fetches

    def fetch(self, coordinates, layer=None, level=0):
        """Fetch by integer coordinates."""
        return self._texels(level, self._whole(coordinates, layer, level))

    def _whole(self, coordinates, layer, level):
        sizes = self.levels[level].shape[2::-1]
        found = [
            self._inside(np.asarray(c, np.int64), size, CLAMP if mode in (WRAP, MIRROR) else mode)
            for c, size, mode in zip(coordinates, sizes, self.modes, strict=False)
        ]
        return self._filled(found, layer, level)

    def _filled(self, indices, layer, level):
        """Add zeros for missing axes, and put the layer in the place of z."""
        count = len(indices[0])
        whole = [*indices, *[np.zeros(count, np.int64)] * (3 - len(indices))]
        if layer is not None:
            whole[2] = np.minimum(np.asarray(layer, np.uint32), len(self.levels[level]) - 1)
        return whole

    def sample(self, coordinates, layer=None, level=0):
        """Fetch by float coordinates from one level."""
        sizes = self.levels[level].shape[2::-1]
        axes = []
        for at, size, mode in zip(coordinates, sizes, self.modes, strict=False):
            turns = mode in (WRAP, MIRROR) and not self.is_normalised
            mode = CLAMP if turns or self.is_cube else mode
            place = self._axis(np.asarray(at), size, mode)
            axes.append(self._indices(place, size, mode, is_linear=self.is_linear))
        if not self.is_linear:
            return self._texels(level, self._filled([axis[0] for axis in axes], layer, level))
        total = None
        for sides in product((0, 1), repeat=len(axes)):
            sides = sides[::-1]  # x varies fastest.
            chosen = [axis[side] for axis, side in zip(axes, sides, strict=True)]
            weight = F(1)
            for (_, _, w), side in zip(axes, sides, strict=True):
                weight = weight * (w if side else F(1) - w)
            part = self._texels(level, self._filled(chosen, layer, level)) * weight[:, None]
            total = part if total is None else total + part
        return total

    def at_detail(self, coordinates, detail, layer=None):
        """Like `sample`, from the one or two levels nearest to a level of detail."""
        last = len(self.levels) - 1
        detail = np.asarray(detail, F) + F(self.bias)
        detail = np.clip(np.clip(detail, *map(F, self.clamps)), F(0), F(last))
        if not self.blends_levels:
            detail = np.floor(detail + F(0.5))
        first = np.minimum(np.floor(detail), last).astype(int)
        part = np.rint((detail - np.floor(detail)) * F(256)) / F(256)
        samples = np.stack([self.sample(coordinates, layer, level) for level in range(last + 1)])
        points = np.arange(len(detail))
        near, far = samples[first, points], samples[np.minimum(first + 1, last), points]
        part = part.astype(F)[:, None]
        return np.where(part == 0, near, near * (F(1) - part) + far * part)

    def gather(self, coordinates, channel, layer=None):
        """One channel of a linear fetch's four texels, counter-clockwise from the lower left."""
        sizes = self.levels[0].shape[2::-1]
        x, y = (
            self._indices(self._axis(np.asarray(at), size, mode), size, mode, is_linear=True)
            for at, size, mode in zip(coordinates, sizes, self.modes, strict=False)
        )
        corners = ((0, 1), (1, 1), (1, 0), (0, 0))
        places = [self._filled([x[i], y[j]], layer, 0) for i, j in corners]
        return np.stack([self._texels(0, place)[:, channel] for place in places], axis=1)


def face_of(direction):
    """The face of a cube that each direction hits, and the position on it, from 0 to 1."""
    x, y, z = (np.asarray(each, F) for each in direction)
    ax, ay, az = abs(x), abs(y), abs(z)
    is_x = (ax >= ay) & (ax >= az)
    is_y = ~is_x & (ay >= az)
    major = np.where(is_x, x, np.where(is_y, y, z))
    face = np.where(is_x, 0, np.where(is_y, 2, 4)) + (major < 0)
    s = np.choose(face, [-z, z, x, x, x, -x])
    t = np.choose(face, [-y, -y, z, -z, -y, -y])
    return face, (s / abs(major) + F(1)) * F(0.5), (t / abs(major) + F(1)) * F(0.5)
