"""Photographs are decoded into batches, augmented by a kernel and learned: the serial answer."""

from __future__ import annotations

import traceback

import numpy as np
import pytest
from helpers.arrays.images import gradient
from PIL import Image

import cudasync as cs
from cudasync.demo.photo import sample_photo
from cudasync.demo.photographs import SIDE, SMALL, augmented, batches, decoded, train


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A photograph, and three crops of it, as JPEGs."""
    folder = tmp_path_factory.mktemp("photographs")
    found = [sample_photo()]
    with Image.open(found[0]) as whole:
        for number in range(3):
            box = (40 * number, 100 * number, 40 * number + 200, 100 * number + 240)
            path = folder / f"{number}.jpg"
            whole.convert("RGB").crop(box).save(path, quality=90)
            found.append(path)
    return found


def drawn(x):
    x &= 0xFFFFFFFF
    x = ((x ^ x >> 16) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ x >> 15) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ x >> 16


def in_numpy(pictures, seed):
    rows = []
    for number, picture in enumerate(pictures):
        random = drawn(seed * 65536 + number)
        room = SIDE - 4 * SMALL
        left, top = (random & 255) % (room + 1), (random >> 8 & 255) % (room + 1)
        cut = picture[top : top + 4 * SMALL, left : left + 4 * SMALL].astype(np.float64)
        small = cut.reshape(SMALL, 4, SMALL, 4, 3).mean(axis=(1, 3)) / 255
        if random >> 16 & 1:
            small = small[:, ::-1]
        rows.append(((0.8 + 0.4 * (random >> 24) / 255) * small - 0.5).reshape(-1))
    return np.array(rows)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_kernel_augments_as_numpy_does(seed):
    pictures = np.stack([gradient(SIDE, SIDE)[..., :3] + np.uint8(40 * n) for n in range(5)])
    found = augmented(cs.array(pictures), seed).numpy()
    np.testing.assert_allclose(found, in_numpy(pictures, seed), atol=1e-5)


def test_a_photograph_is_cut_to_its_middle(tmp_path):
    picture = np.zeros((60, 180, 3), np.uint8)
    picture[:, 60:120] = 200
    Image.fromarray(picture).save(tmp_path / "wide.png")
    sample = decoded((3, str(tmp_path / "wide.png")))
    assert sample["picture"].shape == (SIDE, SIDE, 3)
    assert (sample["picture"][:, 2:-2] == 200).all()
    assert sample["number"] == 3


def test_a_perceptron_learns_from_photographs_and_workers_change_no_bit(paths):
    found = [train(batches(paths, size=4, workers=3), len(paths), 12)]
    with cs.Engine("serial"):
        found.append(train(batches(paths, size=4, workers=1), len(paths), 12))
    for each in found[1:]:
        np.testing.assert_array_equal(each.losses, found[0].losses)
        for mine, first in zip(each.weights, found[0].weights, strict=True):
            np.testing.assert_array_equal(mine, first)
    losses = found[0].losses
    assert losses[-4:].mean() < 0.5 * losses[:4].mean()


def test_a_broken_photograph_is_named(paths, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(paths[1].read_bytes()[:300])
    with pytest.raises(cs.data.DataError) as caught:
        train(batches([*paths, broken], size=2), 5, 9)
    assert caught.value.stage == "map"
    assert isinstance(caught.value.__cause__, OSError)
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert "decoded" in [each.name for each in frames]
