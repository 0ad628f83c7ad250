"""Training in two stages, a layer each, through which a batch goes in micro-batches.

The text is the same for stages on devices of this process, and for a process for each stage.
"""

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
            gradient *= 0  # In place: the next step sums in the same memory.


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
    """The loss of each step, and the weights at the end, in every process."""
    here = comm.each(lambda rank, device: (first, second)[rank](settings, device))
    model = cs.parallel.Pipeline(
        [stage for _, stage in here],
        comm,
        micro_batches=settings.micro_batches,
        schedule=schedule,
        loss=lambda scores, y: loss_of(scores, y, settings.batch),
    )
    losses = []
    for rows, labels in data.batches(settings.batch, settings.steps):
        x = xp.asarray(rows, device=comm.devices[0]) if 0 in comm.ranks else None
        y = xp.asarray(labels, device=comm.devices[-1]) if 1 in comm.ranks else None
        parts = model.step(x, y, rows=settings.batch)
        if parts:
            losses.append(xp.sum(xp.stack(parts)))
        for layer, _ in here:
            layer.update()
    held = {name: each for layer, _ in here for name, each in layer.weights.items()}
    shapes = {name: each.shape for name, each in initial(settings.hidden).items()}
    weights = {
        name: _from(comm, root, held.get(name), shapes[name])
        for root, names in enumerate((("w1", "b1"), ("w2", "b2")))
        for name in names
    }
    return _from(comm, 1, xp.stack(losses) if losses else None, (settings.steps,)), weights


def _from(
    comm: cs.distributed.Communicator, root: int, value: cs.Array | None, shape: tuple[int, ...]
) -> Any:
    """The value of rank `root`, on the first rank of this process."""
    everywhere = comm.each(
        lambda rank, device: value if rank == root else xp.empty(shape, device=device)
    )
    comm.broadcast(everywhere, root)
    return everywhere[0]
