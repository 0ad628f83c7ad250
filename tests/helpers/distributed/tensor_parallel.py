"""A two-layer perceptron split by columns and rows, and in one piece, in exact arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from helpers.distributed.pipeline_models import whole

from cudasync import xp
from cudasync.parallel import ColumnParallel, RowParallel


@dataclass(frozen=True)
class Sizes:
    rows: int
    width: int
    hidden: int
    results: int


def sizes(random):
    return Sizes(*(random.randint(1, 7) for _ in range(4)))


def numbers(of):
    """The input, both weights, and the gradient of the output."""
    return (
        whole(1, of.rows, of.width),
        whole(2, of.width, of.hidden),
        whole(3, of.hidden, of.results),
        whole(4, of.rows, of.results),
    )


class Perceptron:
    """`relu(x @ w1) @ w2`: w1 is split by columns, w2 by rows."""

    def __init__(self, of, comm):
        x, first, second, gradient = numbers(of)
        self.comm = comm
        self.first = ColumnParallel(xp.asarray(first, device="cpu"), comm)
        self.second = RowParallel(xp.asarray(second, device="cpu"), comm)
        self.x, self.gradient = (
            comm.each(lambda rank, device, host=host: xp.asarray(host, device=device))
            for host in (x, gradient)
        )

    def step(self):
        """The output, and the gradients of the input and of this process's parts of both
        weights."""
        pre = self.first.forward(self.x)
        hidden = [xp.maximum(each, 0.0) for each in pre]
        y = self.second.forward(hidden)
        of_hidden, of_second = self.second.backward(hidden, self.gradient)
        of_pre = [
            xp.where(each > 0, gradient, gradient * 0)
            for each, gradient in zip(pre, of_hidden, strict=True)
        ]
        of_x, of_first = self.first.backward(self.x, of_pre)
        return y, of_x, of_first, of_second


def raise_unless_right(of, comm, found):
    """Raise an AssertionError if a result differs from the model in one piece."""
    x, first, second, gradient = numbers(of)
    hidden = np.maximum(x @ first, 0)
    of_pre = np.where(x @ first > 0, gradient @ second.T, 0)
    of_first = np.array_split(x.T @ of_pre, comm.size, 1)
    of_second = np.array_split(hidden.T @ gradient, comm.size, 0)
    for rank, row in zip(comm.ranks, zip(*found, strict=True), strict=True):
        wanted = hidden @ second, of_pre @ first.T, of_first[rank], of_second[rank]
        for what, one, other in zip(("y", "x", "w1", "w2"), row, wanted, strict=True):
            np.testing.assert_array_equal(
                one.numpy(), other, err_msg=f"{what} of rank {rank}", strict=True
            )
