"""Photographs from files to a trained perceptron: an input pipeline, and kernels behind it.

Pillow decodes each photograph and cuts it to a square, in threads, and batches are prefetched to
the device. There a kernel moves, mirrors, brightens and shrinks each picture, by random numbers for
each picture. A perceptron of two layers learns to recognise the photograph. Nothing here says what
may overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import cudasync as cs
from cudasync import xp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cudasync.data import Pipeline

# The sides of a decoded photograph and of a training picture. The margin is room to move.
SIDE, SMALL = 64, 14
HIDDEN, RATE = 32, 0.05
_ROOM = SIDE - 4 * SMALL

# One thread for each value of the small pictures: the mean of 4 x 4 pixels. The corner is moved by
# up to `room` pixels; a picture may be mirrored, and is up to a fifth darker or brighter.
_AUGMENT = r"""
__device__ unsigned drawn(unsigned x) {  // A hash (lowbias32 in shape): no state, no order.
    x ^= x >> 16; x *= 0x7feb352dU;
    x ^= x >> 15; x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

extern "C" __global__ void augment(
    const unsigned char* pictures, float* small, unsigned side, unsigned small_side,
    unsigned room, unsigned seed, unsigned count
) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    unsigned channel = at % 3, column = at / 3 % small_side;
    unsigned row = at / 3 / small_side % small_side, picture = at / 3 / small_side / small_side;
    unsigned random = drawn(seed * 65536U + picture);
    unsigned left = (random & 255U) % (room + 1), top = (random >> 8 & 255U) % (room + 1);
    if (random >> 16 & 1U) column = small_side - 1 - column;
    float brightness = 0.8f + 0.4f * (float)(random >> 24) / 255.0f;
    unsigned total = 0;
    for (unsigned y = 0; y < 4; ++y)
        for (unsigned x = 0; x < 4; ++x)
            total += pictures[((picture * side + top + 4 * row + y) * side + left + 4 * column + x)
                              * 3 + channel];
    small[at] = brightness * (float)total / (16.0f * 255.0f) - 0.5f;
}
"""


def decoded(sample: tuple[int, str]) -> dict[str, Any]:
    """The middle of a photograph, (64, 64, 3) uint8, and its number."""
    number, path = sample
    with Image.open(path) as image:
        side = min(image.size)
        left, top = ((extent - side) // 2 for extent in image.size)
        box = (left, top, left + side, top + side)
        picture = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)
        return {"picture": np.array(picture), "number": np.int32(number)}


def batches(
    paths: Sequence[Path | str], *, size: int = 8, workers: int = 2, seed: int = 1
) -> Pipeline:
    """Endless batches of photographs on the first device, in another order in each epoch."""
    numbered = [(number, str(path)) for number, path in enumerate(paths)]
    pictures = cs.data.source(numbered).shuffle(seed).repeat()
    return pictures.map(decoded, workers=workers).batch(size).prefetch(2, device=0)


def augmented(pictures: cs.Array, seed: int) -> cs.Array:
    """A row of values between -0.5 and 0.7 for each picture: a kernel on the pictures' device."""
    count = pictures.shape[0] * SMALL * SMALL * 3
    small = cs.empty((pictures.shape[0], SMALL * SMALL * 3), np.float32, device=pictures.device)
    kernel = cs.Module.from_cuda(_AUGMENT, name="augment.cu").kernel("augment")
    sizes = (np.uint32(each) for each in (SIDE, SMALL, _ROOM, seed, count))
    kernel[(-(-count // 128),), (128,)](pictures, small, *sizes)
    return small


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of training: the loss at each step, and the weights."""

    losses: np.ndarray[Any, Any]
    weights: tuple[np.ndarray[Any, Any], ...]


def train(pipeline: Pipeline, classes: int, steps: int) -> Trained:
    """Train a perceptron of two layers on `steps` batches; waits only for the results."""
    rng = cs.random.Generator(seed=2)
    inputs = SMALL * SMALL * 3
    w1 = rng.normal(0, inputs**-0.5, (inputs, HIDDEN), device=0)
    w2 = rng.normal(0, HIDDEN**-0.5, (HIDDEN, classes), device=0)
    every = cs.array(np.arange(classes, dtype=np.int32))
    losses = []
    for step, batch in _first(pipeline, steps):
        x = augmented(batch["picture"], seed=step)
        wanted = xp.astype(batch["number"][:, None] == every[None, :], xp.float32)
        count = x.shape[0]
        hidden = xp.tanh(x @ w1)
        error = hidden @ w2 - wanted
        losses.append(xp.sum(error * error) / count)
        grad_2 = hidden.T @ error
        grad_1 = x.T @ ((error @ w2.T) * (1 - hidden * hidden))
        w2 = w2 - RATE / count * grad_2
        w1 = w1 - RATE / count * grad_1
    told = np.array([float(each) for each in losses])
    return Trained(told, (w1.numpy(), w2.numpy()))


def _first(pipeline: Pipeline, steps: int) -> Iterator[tuple[int, Any]]:
    with pipeline:
        yield from zip(range(steps), pipeline, strict=False)
