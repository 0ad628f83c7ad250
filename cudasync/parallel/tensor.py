"""Floor 5. Tensor parallel: one matrix product on several ranks, with collectives in the step.

A weight is cut by columns or by rows. A product by columns, elementwise operations and a product by
rows need one all_reduce forwards and one backwards (Shoeybi et al., 2019):

    y = all_reduce(tanh(x @ columns) @ rows)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array import Array, copy, empty
from cudasync.distributed.argument_checks import listed
from cudasync.parallel.replicas import shares

if TYPE_CHECKING:
    from cudasync.distributed.communicator import Communicator


class _Split:
    """A weight of which each rank has a part along `axis`; `weights` are this process's parts."""

    axis: int

    def __init__(self, weight: Any, comm: Communicator) -> None:
        if not isinstance(weight, Array):
            raise TypeError(
                f"weight must be a cudasync array, not {type(weight).__name__}: use cs.array()"
            )
        if weight.ndim != 2:
            raise ValueError(f"weight must be a matrix, not of shape {weight.shape}")
        self.comm = comm
        self.shape = weight.shape
        self.weights: list[Any] = []
        cuts = shares(weight.shape[self.axis], comm.size)
        for rank, device in zip(comm.ranks, comm.devices, strict=True):
            part = weight[:, cuts[rank]] if self.axis else weight[cuts[rank]]
            made = empty(part.shape, part.dtype, device=device)
            if part.size:
                copy(made, part, name="part of a weight")
            self.weights.append(made)

    def _products(self, x: Any) -> list[Any]:
        xs = listed(self.comm, x, "x")
        return [each @ weight for each, weight in zip(xs, self.weights, strict=True)]

    def _of_inputs(self, gradient: Any) -> list[Any]:
        given = listed(self.comm, gradient, "gradient")
        return [each @ weight.T for each, weight in zip(given, self.weights, strict=True)]

    def _of_weights(self, x: Any, gradient: Any) -> list[Any]:
        xs, given = listed(self.comm, x, "x"), listed(self.comm, gradient, "gradient")
        return [each.T @ other for each, other in zip(xs, given, strict=True)]


class ColumnParallel(_Split):
    """`x @ weight` where each rank has columns of the weight: the first of a pair.

    `weight` is the whole matrix, the same in all processes, on any device. Arrays are lists with
    one array for each rank of this process; a process with one rank may give the array alone.
    Results are lists. Every call pushes and returns at once. Ranks' counts of columns differ by at
    most one. Raises TypeError and ValueError for a weight that is no matrix, and the errors of the
    communicator and of `@`.
    """

    axis = 1

    def forward(self, x: Any) -> list[Any]:
        """Each rank's columns of the product; `x` is the same on all ranks. Nothing is sent."""
        return self._products(x)

    def backward(self, x: Any, gradient: Any) -> tuple[list[Any], list[Any]]:
        """The gradients of `x`, the same on all ranks, and of `weights`.

        The gradient of `x` is an all_reduce, which overlaps with the gradient of `weights`.
        """
        of_x = self._of_inputs(gradient)
        self.comm.all_reduce(of_x, priority=1)
        return of_x, self._of_weights(x, gradient)


class RowParallel(_Split):
    """`x @ weight` where each rank has rows of the weight, and the same columns of `x`: the second.

    Otherwise like `ColumnParallel`, whose results, after elementwise operations, are its input.
    """

    axis = 0

    def forward(self, x: Any) -> list[Any]:
        """The whole product on all ranks, from each rank's columns of `x`, by an all_reduce."""
        y = self._products(x)
        self.comm.all_reduce(y, priority=1)
        return y

    def backward(self, x: Any, gradient: Any) -> tuple[list[Any], list[Any]]:
        """The gradients of each rank's columns of `x`, and of `weights`; nothing is sent.

        `gradient`, of the product, is the same on all ranks.
        """
        return self._of_inputs(gradient), self._of_weights(x, gradient)
