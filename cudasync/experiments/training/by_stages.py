"""Trained in two stages, a layer each, through which a batch goes in micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync import xp
from cudasync.experiments.training.model import (
    Settings,
    hidden_gradients,
    hidden_layer,
    initial,
    loss_of,
)

if TYPE_CHECKING:
    from cudasync.experiments.training.digits import Data


class Layer:
    """A stage's weights, and the sums of their gradients over the micro-batches of a step."""

    def __init__(self, settings: Settings, device: Any, *names: str) -> None:
        given = initial(settings.hidden)
        self.weights = {name: xp.asarray(given[name], device=device) for name in names}
        self.gradients = {name: xp.zeros_like(each) for name, each in self.weights.items()}
        self.rate = settings.rate

    def update(self) -> None:
        for name, gradient in self.gradients.items():
            self.weights[name] -= self.rate * gradient
            gradient *= 0  # In place: the next step adds up in the same memory.


def first(settings: Settings, device: Any) -> tuple[Layer, cs.parallel.Stage]:
    layer = Layer(settings, device, "w1", "b1")

    def forward(x: cs.Array) -> tuple[cs.Array, Any]:
        hidden = hidden_layer(x, *layer.weights.values())
        return hidden, (x, hidden)

    def backward(kept: Any, gradient: cs.Array) -> None:
        x, hidden = kept
        of_w1, of_b1 = hidden_gradients(x, hidden, gradient)
        layer.gradients["w1"] += of_w1
        layer.gradients["b1"] += of_b1

    return layer, cs.parallel.Stage(forward, backward)


def second(settings: Settings, device: Any) -> tuple[Layer, cs.parallel.Stage]:
    layer = Layer(settings, device, "w2", "b2")

    def forward(hidden: cs.Array) -> tuple[cs.Array, Any]:
        return hidden @ layer.weights["w2"] + layer.weights["b2"], hidden

    def backward(hidden: cs.Array, gradient: cs.Array) -> Any:
        layer.gradients["w2"] += hidden.T @ gradient
        layer.gradients["b2"] += xp.sum(gradient, axis=0)
        return gradient @ layer.weights["w2"].T

    return layer, cs.parallel.Stage(forward, backward, takes=((settings.hidden,), xp.float32))


def train(
    data: Data, settings: Settings, comm: cs.distributed.Communicator, schedule: str = "1f1b"
) -> tuple[cs.Array, dict[str, cs.Array]]:
    """The loss of each step, and the weights at the end; both stages are in this process."""
    (one, first_stage), (two, second_stage) = (
        make(settings, device) for make, device in zip((first, second), comm.devices, strict=True)
    )
    model = cs.parallel.Pipeline(
        [first_stage, second_stage],
        comm,
        micro_batches=settings.micro_batches,
        schedule=schedule,
        loss=lambda scores, y: loss_of(scores, y, settings.batch),
    )
    losses = []
    for rows, labels in data.batches(settings.batch, settings.steps):
        parts = model.step(
            xp.asarray(rows, device=comm.devices[0]), xp.asarray(labels, device=comm.devices[1])
        )
        losses.append(xp.sum(xp.stack(parts)))
        for layer in (one, two):
            layer.update()
    return xp.stack(losses), one.weights | two.weights
