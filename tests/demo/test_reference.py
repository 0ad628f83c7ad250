"""The NumPy reference does what an enhancement should, so the reference itself is checked."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.arrays.images import gradient

from cudasync.demo.reference import enhance_reference
from cudasync.demo.settings import gaussian, settings_for


def with_alpha(colours, alpha=255):
    return np.dstack([colours, np.full(colours.shape[:2], alpha, np.uint8)])


@pytest.mark.parametrize("sigma", [0.3, 0.8, 4.0, 16.0])
def test_weights_are_symmetric_and_sum_to_one(sigma):
    weights = gaussian(sigma)
    assert len(weights) % 2 == 1
    np.testing.assert_array_equal(weights, weights[::-1])
    assert weights.sum(dtype=np.float64) == pytest.approx(1.0, abs=1e-6)


def test_blurs_grow_with_the_picture_up_to_a_limit():
    radii = [len(settings_for(side, 10).large_weights) for side in (10, 800, 1600, 3200, 30000)]
    assert radii[0] == radii[1] < radii[2] < radii[3] == radii[4]


@pytest.mark.parametrize("level", [0, 1, 128, 254, 255])
def test_an_even_picture_stays_as_it_is(level):
    pixels = with_alpha(np.full((9, 7, 3), level, np.uint8), alpha=77)
    np.testing.assert_array_equal(enhance_reference(pixels, settings_for(7, 9)), pixels)


@pytest.mark.parametrize("size", [(1, 1), (1, 30), (30, 1), (2, 2)])
def test_the_smallest_pictures_come_through(size):
    pixels = with_alpha(gradient(*size))
    assert enhance_reference(pixels, settings_for(*size)).shape == pixels.shape


def test_an_edge_gets_steeper_and_noise_gets_less():
    rng = np.random.default_rng(5)
    levels = np.full((40, 80), 90.0)
    levels[:, 40:] = 160.0
    levels = levels + rng.normal(0, 2, levels.shape)
    # A soft edge, which sharpening is for.
    levels[:, 38:42] = np.linspace(90, 160, 4)
    pixels = with_alpha(np.repeat(levels.astype(np.uint8)[..., np.newaxis], 3, axis=2))
    enhanced = enhance_reference(pixels, settings_for(80, 40)).astype(float)[..., 0]
    before = pixels[..., 0].astype(float)
    assert np.ptp(enhanced[20, 36:44]) > np.ptp(before[20, 36:44]) + 5
    assert enhanced[:, 5:25].std() < 0.7 * before[:, 5:25].std()


def test_greys_stay_grey_and_alpha_stays():
    grey = np.repeat(gradient(31, 17)[..., :1], 3, axis=2)
    enhanced = enhance_reference(with_alpha(grey, alpha=9), settings_for(31, 17))
    np.testing.assert_array_equal(enhanced[..., 0], enhanced[..., 1])
    np.testing.assert_array_equal(enhanced[..., 0], enhanced[..., 2])
    assert (enhanced[..., 3] == 9).all()
