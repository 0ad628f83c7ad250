"""Floor 5. Buckets: which gradients travel together, and the place of each in its bucket.

The plan depends on names, shapes, dtypes and sizes alone, so all ranks make the same plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from cudasync import xp
from cudasync.array import empty

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from cudasync.distributed.communicator import Communicator
    from cudasync.distributed.work import Work

Name: TypeAlias = "str | int"


@dataclass(frozen=True, slots=True)
class Parameter:
    """The properties of a parameter that a plan needs."""

    name: Name
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Planned:
    """A bucket of the plan: its parameters, one after the other, all of one dtype."""

    parameters: tuple[Parameter, ...]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.parameters)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parameters[0].dtype


def planned(
    parameters: Sequence[Parameter], bucket_bytes: int, first_bucket_bytes: int
) -> list[Planned]:
    """The buckets in the order of their launches.

    Gradients come in the reverse order of use, so the last parameter is in the first bucket. A
    bucket is closed when the next gradient would make it too long. A gradient that is too long by
    itself has its own bucket. Buckets are ordered by their last gradient.
    """
    is_open: dict[Any, list[int]] = {}
    closed: list[list[int]] = []
    backwards = list(reversed(parameters))
    for number, parameter in enumerate(backwards):
        most = first_bucket_bytes if not closed else bucket_bytes
        held = is_open.setdefault(parameter.dtype, [])
        length = sum(backwards[each].size for each in (*held, number)) * parameter.dtype.itemsize
        if held and length > most:
            closed.append(held)
            held = is_open[parameter.dtype] = []
        held.append(number)
    closed += [held for held in is_open.values() if held]
    closed.sort(key=lambda held: held[-1])
    return [Planned(tuple(backwards[each] for each in held)) for held in closed]


class Bucket:
    """Gradients that one call reduces; the argument of a hook.

    `arrays` has one array for each rank of this process, of one dimension; a hook turns the arrays
    into the reduction by pushes. `names` are the parameters, `index` the bucket's place in the
    order of launches, `op` is "sum" or "mean", and `comm` the communicator.
    """

    def __init__(
        self, index: int, names: tuple[Name, ...], arrays: list[Any], comm: Communicator, op: str
    ) -> None:
        self.index = index
        self.names = names
        self.arrays = arrays
        self.comm = comm
        self.op = op

    @property
    def size(self) -> int:
        """The number of elements on each rank."""
        return int(self.arrays[0].size)

    def all_reduce(self) -> Work:
        """Launch the default reduction, which is used without a hook."""
        work: Work = self.comm.all_reduce(self.arrays, op=self.op, priority=1)
        return work

    def __repr__(self) -> str:
        told = ", ".join(map(repr, self.names))
        return f"<Bucket {self.index}: {told}, {self.size} x {self.arrays[0].dtype}>"


def laid_out(
    plan: Sequence[Planned], comm: Communicator, op: str
) -> tuple[list[Bucket], dict[Name, list[Any]]]:
    """The buckets in new memory, and each parameter's views of it, one for each rank here."""
    buckets: list[Bucket] = []
    views: dict[Name, list[Any]] = {}
    for index, each in enumerate(plan):
        flat = [empty((each.size,), each.dtype, device=device) for device in comm.devices]
        names = tuple(parameter.name for parameter in each.parameters)
        buckets.append(Bucket(index, names, flat, comm, op))
        start = 0
        for parameter in each.parameters:
            end = start + parameter.size
            views[parameter.name] = [xp.reshape(row[start:end], parameter.shape) for row in flat]
            start = end
    return buckets, views
