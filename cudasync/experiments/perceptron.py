"""A perceptron of two layers, trained on two GPUs and the CPU.

Each GPU has half of the samples and computes their gradients. The CPU sums the gradients, changes
the weights and copies them to the GPUs. The gradient of the second layer is ready first, so the CPU
changes this layer while the GPUs compute the gradient of the first layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import cudasync as cs
from cudasync import xp
from cudasync.experiments.experiment import Experiment, serially

if TYPE_CHECKING:
    Matrix = np.ndarray[Any, Any]

STEPS, RATE = 4, 0.1


def prepare(size: int) -> tuple[cs.Array, ...]:
    rng = cs.random.Generator(seed=6)
    x0, x1 = (rng.normal(0, 1, (size, size), device=gpu) for gpu in (0, 1))
    y0, y1 = (rng.normal(0, 1, (size, 1), device=gpu) for gpu in (0, 1))
    w1 = rng.normal(0, size**-0.5, (size, size), device="cpu")
    w2 = rng.normal(0, size**-0.5, (size, 1), device="cpu")
    return x0, x1, y0, y1, w1, w2


def train(
    x0: cs.Array, x1: cs.Array, y0: cs.Array, y1: cs.Array, w1: cs.Array, w2: cs.Array
) -> list[cs.Array]:
    """The loss before each step, and the final weights; updates run on the device of `w1`."""
    home, count = w1.device, x0.shape[0] + x1.shape[0]
    losses = []
    for _ in range(STEPS):
        shares = []
        for x, y in ((x0, y0), (x1, y1)):
            v1, v2 = w1.to_device(x.device), w2.to_device(x.device)
            # Forward.
            hidden = xp.tanh(x @ v1)
            error = hidden @ v2 - y
            loss = xp.sum(error * error) / count
            # Backward.
            grad_2 = hidden.T @ error
            grad_1 = x.T @ ((error @ v2.T) * (1 - hidden * hidden))
            shares.append([each.to_device(home) for each in (loss, grad_2, grad_1)])
        # Update.
        (loss_0, grad_2_0, grad_1_0), (loss_1, grad_2_1, grad_1_1) = shares
        losses.append(loss_0 + loss_1)
        w2 = w2 - RATE / count * (grad_2_0 + grad_2_1)
        w1 = w1 - RATE / count * (grad_1_0 + grad_1_1)
    return [*losses, w1, w2]


def on_one_gpu(*inputs: cs.Array) -> list[cs.Array]:
    """The same, with samples, weights and updates on the first GPU."""
    return train(*(each.to_device(0) for each in inputs))


def in_numpy(
    x0: Matrix, x1: Matrix, y0: Matrix, y1: Matrix, w1: Matrix, w2: Matrix
) -> list[Matrix]:
    """Trained on all samples at once."""
    x, y, losses = np.concatenate([x0, x1]), np.concatenate([y0, y1]), []
    for _ in range(STEPS):
        hidden = np.tanh(x @ w1)
        error = hidden @ w2 - y
        losses.append(np.mean(error * error))
        grad_2 = hidden.T @ error
        grad_1 = x.T @ ((error @ w2.T) * (1 - hidden * hidden))
        w2 = w2 - RATE / len(x) * grad_2
        w1 = w1 - RATE / len(x) * grad_1
    return [*losses, w1, w2]


EXPERIMENT = Experiment(
    name="perceptron",
    title="a perceptron of two layers, trained on the CPU and two GPUs",
    expectation="both GPUs and the CPU work at the same time; the loss equals the loss of one GPU",
    clock="wall",
    devices=2,
    size=640,
    prepare=prepare,
    ways={
        "on one GPU": on_one_gpu,
        "one after the other": serially(train),
        "together": train,
    },
    reference=in_numpy,
    # Sums of gradients wait for the slower GPU, and both GPUs wait for the weights.
    least_shared=0.3,
    remark=lambda results: "loss " + ", ".join(f"{loss:.4f}" for loss in results[:STEPS]),
)
