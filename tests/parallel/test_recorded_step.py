"""A training step with its collectives is recorded once and launched for each batch."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.parallel import DataParallel

ROWS, WIDTH, STEPS, RATE = 6, 5, 4, 0.1


def batches(comm):
    """The batches, by step and rank."""
    random = np.random.default_rng(4)
    return random.standard_normal((STEPS, comm.size, ROWS, WIDTH)).astype(np.float32)


class Learner:
    """Two layers that learn the sum of their input."""

    def __init__(self, comm):
        random = np.random.default_rng(5)
        host = [random.standard_normal(shape).astype(np.float32) for shape in ((WIDTH, 3), (3,))]
        self.comm = comm
        self.weights = [
            comm.each(lambda rank, device, each=each: xp.asarray(each, device=device))
            for each in host
        ]
        self.model = DataParallel(self.weights, comm, bucket_bytes=16)
        self.losses = comm.each(lambda rank, device: xp.zeros((), device=device))

    def step(self, xs):
        for here, (rank, x) in enumerate(zip(self.comm.ranks, xs, strict=True)):
            w1, w2 = (arrays[here] for arrays in self.weights)
            hidden = xp.tanh(x @ w1)
            error = hidden @ w2 - xp.sum(x, axis=1)
            self.losses[here] += xp.sum(error * error)
            of_sum = xp.reshape(error, (ROWS, 1)) * w2 * (1 - hidden * hidden)
            self.model.ready(1, hidden.T @ error, rank=rank)
            self.model.ready(0, x.T @ of_sum, rank=rank)
        for name, gradients in self.model.finish().items():
            for weight, gradient in zip(self.weights[name], gradients, strict=True):
                weight -= RATE * gradient

    def values(self):
        arrays = [*self.weights[0], *self.weights[1], *self.losses]
        return [each.numpy() for each in arrays]


@pytest.mark.parametrize("places", [[0], [0, 1], [0, 0, "cpu"], ["cpu", "cpu"]])
def test_a_recorded_step_is_the_step(places):
    count = cs.device_count()
    places = [each if each == "cpu" else each % count for each in places]
    comm = cs.distributed.init("local", devices=places)
    host = batches(comm)
    plain, recorded = Learner(comm), Learner(comm)
    for row in host:
        plain.step(comm.each(lambda rank, device, row=row: xp.asarray(row[rank], device=device)))
    xs = comm.each(lambda rank, device: xp.asarray(host[0][rank], device=device))
    with cs.graph() as graph:
        named = [graph.argument(f"x{rank}", x) for rank, x in enumerate(xs)]
        recorded.step(named)
    executable = graph.instantiate()
    for row in host:
        executable.update(
            **{
                f"x{rank}": xp.asarray(row[rank], device=device)
                for rank, device in enumerate(comm.devices)
            }
        )
        executable.launch()
    for one, other in zip(plain.values(), recorded.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    for each in recorded.weights:
        for other in each[1:]:
            np.testing.assert_array_equal(each[0].numpy(), other.numpy())
    assert recorded.losses[0].numpy() > 0
