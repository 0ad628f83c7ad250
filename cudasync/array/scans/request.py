"""Floor 4, scans. A request: the array properties and the dtypes of a scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.array.reductions.table import REDUCTIONS, accumulates, total_dtype

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType
    from cudasync.array.reductions.table import Reduction


@dataclass(frozen=True, slots=True)
class Request:
    """A running reduction along `axis`, accumulated as `found`; `has_initial` puts the start value
    before the first result."""

    reduction: Reduction
    shape: tuple[int, ...]
    axis: int
    found: DType
    result: DType
    has_initial: bool

    @property
    def of_nothing(self) -> float:
        found = self.reduction.of_nothing
        assert found is not None
        return found

    @property
    def result_shape(self) -> tuple[int, ...]:
        lengths = list(self.shape)
        lengths[self.axis] += self.has_initial
        return tuple(lengths)


def requested(
    name: str,
    shape: tuple[int, ...],
    given: DType,
    *,
    axis: int,
    dtype: DType | None,
    has_initial: bool,
) -> Request:
    """The request for elements of dtype `given`; TypeError for a dtype that it does not take."""
    reduction = REDUCTIONS[name]
    reduction.accept(given)
    result = total_dtype(given) if dtype is None else dtype
    return Request(reduction, shape, axis, accumulates(result), result, has_initial)
