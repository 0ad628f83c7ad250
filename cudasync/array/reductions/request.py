"""Floor 4, reductions. A request: the axes, dtypes, element and finish of a reduction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.expressions.tree import Expression
    from cudasync.array.reductions.table import Reduction


@dataclass(frozen=True, slots=True)
class Request:
    """A reduction of operands that are broadcast to `shape`, along `axes`.

    `correction` is subtracted from the number of elements in a divisor.
    """

    reduction: Reduction
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    keeps_dims: bool
    element: Expression
    finish: Expression
    correction: float

    @property
    def length(self) -> int:
        """The number of elements that become one."""
        return math.prod(self.shape[axis] for axis in self.axes)

    @property
    def divisor(self) -> float:
        """As in NumPy, a correction beyond the number of elements gives infinities or NaN."""
        return max(self.length - self.correction, 0)

    @property
    def of_nothing(self) -> float:
        found = self.reduction.of_nothing
        assert found is not None
        return found

    @property
    def result_shape(self) -> tuple[int, ...]:
        return shape_left(self.shape, self.axes, keeps_dims=self.keeps_dims)


def shape_left(
    shape: tuple[int, ...], axes: tuple[int, ...], *, keeps_dims: bool
) -> tuple[int, ...]:
    """The shape of a result that is reduced along these axes."""
    if keeps_dims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def requested(
    reduction: Reduction,
    shape: tuple[int, ...],
    dtypes: Sequence[DType],
    *,
    axes: tuple[int, ...],
    keeps_dims: bool,
    dtype: DType | None,
    correction: float = 0,
) -> Request:
    """The request for operands of these dtypes. TypeError for dtypes that the reduction does not
    take, ValueError if there is no element to choose from."""
    reduction.accept(dtypes[0])
    element = reduction.element(tuple(dtypes), dtype)
    result = reduction.gives(dtypes[0]) if dtype is None else dtype
    finish = reduction.finish(element.dtype, result)
    request = Request(
        reduction, shape, tuple(sorted(axes)), keeps_dims, element, finish, correction
    )
    if reduction.of_nothing is None and not request.length:
        raise ValueError(
            f"{reduction.name} needs at least one element, but axes {request.axes} of shape "
            f"{shape} have none"
        )
    return request
