"""The perceptron: weights, the arithmetic of its layers, and all of it in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import cudasync as cs
from cudasync import xp
from cudasync.experiments.training.digits import CLASSES, WIDTH

if TYPE_CHECKING:
    from cudasync.experiments.training.digits import Data

    Matrix = np.ndarray[Any, Any]

# The weights, in the order of their use.
NAMES = ("w1", "b1", "w2", "b2")


@dataclass(frozen=True, slots=True)
class Settings:
    """The common settings of all ways."""

    hidden: int = 64
    steps: int = 36
    batch: int = 128
    micro_batches: int = 4
    rate: float = 0.5


def initial(hidden: int) -> dict[str, Matrix]:
    """The weights before the first step, the same everywhere."""
    rng = cs.random.Generator(seed=8)
    w1 = rng.normal(0, WIDTH**-0.5, (WIDTH, hidden), device="cpu")
    w2 = rng.normal(0, hidden**-0.5, (hidden, CLASSES), device="cpu")
    return {
        "w1": w1.numpy(),
        "b1": np.zeros(hidden, np.float32),
        "w2": w2.numpy(),
        "b2": np.zeros(CLASSES, np.float32),
    }


def hidden_layer(x: cs.Array, w1: cs.Array, b1: cs.Array) -> Any:
    return xp.tanh(x @ w1 + b1)


def hidden_gradients(
    x: cs.Array, hidden: cs.Array, gradient: cs.Array
) -> tuple[cs.Array, cs.Array]:
    """The gradients of `w1` and `b1`, from the gradient of the hidden layer."""
    of_sum = gradient * (1 - hidden * hidden)
    return x.T @ of_sum, xp.sum(of_sum, axis=0)


def loss_of(scores: cs.Array, y: cs.Array, rows: int) -> tuple[cs.Array, cs.Array]:
    """The cross entropy of these rows, divided by `rows`, and the gradient of `scores`."""
    shifted = scores - xp.max(scores, axis=1, keepdims=True)
    powers = xp.exp(shifted)
    total = xp.sum(powers, axis=1, keepdims=True)
    right = xp.sum(shifted * y, axis=1, keepdims=True)
    return xp.sum(xp.log(total) - right) / rows, (powers / total - y) / rows


def in_numpy(data: Data, settings: Settings) -> tuple[list[float], dict[str, Matrix]]:
    """The loss of each step and the weights at the end, in float64."""
    weights = {name: each.astype(np.float64) for name, each in initial(settings.hidden).items()}
    losses = []
    for x, y in data.batches(settings.batch, settings.steps):
        hidden = np.tanh(x @ weights["w1"] + weights["b1"])
        scores = hidden @ weights["w2"] + weights["b2"]
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        share = powers / powers.sum(axis=1, keepdims=True)
        losses.append(float(-np.mean(np.log(np.sum(share * y, axis=1)))))
        of_scores = (share - y) / len(x)
        of_sum = of_scores @ weights["w2"].T * (1 - hidden * hidden)
        gradients = {
            "w1": x.T @ of_sum,
            "b1": of_sum.sum(axis=0),
            "w2": hidden.T @ of_scores,
            "b2": of_scores.sum(axis=0),
        }
        for name in NAMES:
            weights[name] -= settings.rate * gradients[name]
    return losses, weights


def accuracy(data: Data, weights: dict[str, Matrix]) -> float:
    """The share of test digits that the weights classify correctly."""
    hidden = np.tanh(data.test_x @ weights["w1"] + weights["b1"])
    scores = hidden @ weights["w2"] + weights["b2"]
    return float(np.mean(scores.argmax(axis=1) == data.test_y.argmax(axis=1)))
