"""Models in stages with exact arithmetic, and the same models in one piece."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np

from cudasync import xp
from cudasync.parallel import Pipeline, Stage


@dataclass(frozen=True)
class Model:
    """`widths` are the widths of each stage's input, and of the last stage's output."""

    widths: tuple
    rows: int
    micro_batches: int
    schedule: str


def model(random, stages):
    """The model that the state of `random` determines."""
    micro_batches = random.randint(1, 6)
    return Model(
        widths=tuple(random.randint(1, 4) for _ in range(stages + 1)),
        rows=micro_batches + random.randint(0, 7),
        micro_batches=micro_batches,
        schedule=random.choice(("1f1b", "gpipe")),
    )


def whole(first, *shape):
    """An array of small whole numbers. Their sums and products are exact in float64."""
    return ((np.arange(np.prod(shape)) * 5 + first) % 7 - 3).reshape(shape).astype(np.float64)


def weights(model):
    return [
        whole(number, *model.widths[number : number + 2]) for number in range(len(model.widths) - 1)
    ]


def batch(model):
    return whole(1, model.rows, model.widths[0]), whole(2, model.rows, model.widths[-1])


class Kept:
    """The part of a micro-batch that a stage keeps."""

    def __init__(self, x):
        self.x = x


class Layer:
    """A stage that computes a product. `most` counts the kept objects alive at once."""

    def __init__(self, weight, device, receives):
        self.weight = xp.asarray(weight, device=device)
        self.gradient = xp.zeros_like(self.weight)
        self.alive = weakref.WeakSet()
        self.most = 0
        takes = ((weight.shape[0],), np.float64) if receives else None
        self.stage = Stage(self.forward, self.backward, takes=takes)

    def forward(self, x):
        kept = Kept(x)
        self.alive.add(kept)
        self.most = max(self.most, len(self.alive))
        return x @ self.weight, kept

    def backward(self, kept, gradient):
        self.gradient += kept.x.T @ gradient
        return gradient @ self.weight.T


def loss(y, target):
    """The sum of squares, and its gradient with respect to `y`."""
    error = y - target
    return xp.sum(error * error), error * 2


def pipeline(model, comm):
    """The pipeline and its layers, for the ranks of this process."""
    host = weights(model)
    layers = comm.each(lambda rank, device: Layer(host[rank], device, rank > 0))
    made = Pipeline(
        [each.stage for each in layers],
        comm,
        micro_batches=model.micro_batches,
        schedule=model.schedule,
        loss=loss if comm.size - 1 in comm.ranks else None,
    )
    return made, layers


def step(model, comm, made):
    """Run one step with the inputs of this process's ranks; return the losses by micro-batch."""
    x, target = batch(model)
    first, last = comm.devices[0], comm.devices[-1]
    return made.step(
        xp.asarray(x, device=first) if 0 in comm.ranks else None,
        xp.asarray(target, device=last) if comm.size - 1 in comm.ranks else None,
        rows=model.rows,
    )


def in_one_piece(model):
    """The loss and the gradient of each weight, in NumPy on the whole batch."""
    x, target = batch(model)
    layers, inputs = weights(model), []
    for weight in layers:
        inputs.append(x)
        x = x @ weight
    error = x - target
    gradient, found = 2 * error, []
    for weight, entered in zip(reversed(layers), reversed(inputs), strict=True):
        found.insert(0, entered.T @ gradient)
        gradient = gradient @ weight.T
    return np.sum(error * error), found


def raise_unless_right(model, comm, layers, losses, times=1):
    """Raise an AssertionError if a loss or a gradient differs from the model in one piece."""
    total, gradients = in_one_piece(model)
    for rank, layer in zip(comm.ranks, layers, strict=True):
        np.testing.assert_array_equal(
            layer.gradient.numpy(), times * gradients[rank], err_msg=f"gradient of stage {rank}"
        )
    if comm.size - 1 in comm.ranks:
        assert len(losses) == model.micro_batches
        assert sum(float(each) for each in losses) == total, "the loss"
    else:
        assert losses == []


def most_promised(model, rank, stages):
    """The most micro-batches that a stage may keep at once."""
    if model.schedule == "gpipe":
        return model.micro_batches
    return min(stages - rank, model.micro_batches)
