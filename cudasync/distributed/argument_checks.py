"""Floor 5. Arguments of collectives, checked before anything moves."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cudasync.array import Array
from cudasync.xp.parameter_checks import place, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.distributed.communicator import Communicator


def listed(comm: Communicator, x: Any, what: str, only: Sequence[int] | None = None) -> list[Any]:
    """One array for each rank of this process. Ranks that are not in `only` may give None."""
    given = list(x) if isinstance(x, (list, tuple)) else [x]
    if len(given) != len(comm.ranks):
        raise ValueError(
            f"{what} takes one array for each rank of this process: a list of {len(comm.ranks)}, "
            f"not {len(given)}"
        )
    for rank, device, each in zip(comm.ranks, comm.devices, given, strict=True):
        if only is not None and rank not in only:
            continue
        if not isinstance(each, Array):
            raise TypeError(
                f"{what} of rank {rank} must be an array of cudasync, not {type(each).__name__}: "
                f"use "
                f"cs.array(x, device=...)"
            )
        each.form.raise_if_over()
        if each.device != device:
            raise ValueError(
                f"{what} of rank {rank} is on {each.device}, the rank's device is {device}: move "
                f"it with to_device"
            )
    return given


def lists(comm: Communicator, x: Any, out: Any) -> tuple[list[Any], list[Any]]:
    """The inputs and the outputs of all ranks of this process."""
    comm.raise_if_over()
    xs, outs = listed(comm, x, "x"), listed(comm, out, "out")
    writable(outs, "out")
    return xs, outs


def end(
    comm: Communicator, x: Any, rank: Any, other: Any, *, what: str, role: str
) -> tuple[int, int, Any]:
    """The rank of this process that sends or receives, the other end, and the one array here."""
    comm.raise_if_over()
    if rank is None and len(comm.ranks) > 1:
        raise ValueError("this process has several ranks: choose one with rank=")
    here = comm.rank if rank is None else as_rank(comm, rank, "rank")
    if here not in comm.ranks:
        raise ValueError(f"rank={rank} is in another process: this one has {list(comm.ranks)}")
    there, at = as_rank(comm, other, what), comm.ranks.index(here)
    row: list[Any] = [None] * len(comm.ranks)
    row[at] = x[0] if isinstance(x, (list, tuple)) and len(x) == 1 else x
    return here, there, listed(comm, row, role, (here,))[at]


def one_pair(comm: Communicator, x: Any, out: Any, *, is_needed: bool = False) -> tuple[Any, Any]:
    """The input and the output of a process with one rank; None for an output that is left out."""
    comm.raise_if_over()
    is_in_place = out is x
    (x,) = listed(comm, x, "x")
    if out is None and not is_needed:
        return x, None
    (out,) = (x,) if is_in_place else listed(comm, out, "out")
    writable([out], "out")
    return x, out


def one_color(color: Any, key: Any) -> tuple[Any, Any, bool]:
    """The color and key of the one rank of a process, and whether they came in a list."""
    is_listed = isinstance(color, (list, tuple))
    colors, keys = (color, key or [None]) if is_listed else ([color], [key])
    if len(colors) != 1 or len(keys) != 1:
        raise ValueError("split takes a list of 1 color and a list of 1 key")
    return colors[0], 0 if keys[0] is None else keys[0], is_listed


def places_of(devices: Any) -> list[Any]:
    """The devices of a list; TypeError for anything but a list of devices."""
    if isinstance(devices, str) or not hasattr(devices, "__iter__"):
        raise TypeError(f"devices= takes a list of devices, such as [{devices!r}], not {devices!r}")
    return [place(each) for each in devices]


def raise_unless_callable(fn: Any, what: str) -> None:
    """TypeError for anything but a function."""
    if not callable(fn):
        raise TypeError(f"{what} must be a function, not {type(fn).__name__}")


def a_communicator(comm: Any) -> Communicator:
    """`comm`; TypeError for anything else."""
    if not hasattr(comm, "ranks"):
        kind = type(comm).__name__
        raise TypeError(f"comm must be a communicator of cs.distributed.init(), not {kind}")
    found: Communicator = comm
    return found


def alike(arrays: Sequence[Any], shape: tuple[int, ...], dtype: Any, what: str) -> None:
    """Raise TypeError for another dtype, ValueError for another shape."""
    for each in arrays:
        if each.dtype != dtype:
            raise TypeError(f"{what} has dtype {each.dtype}, but must have {dtype}")
        if each.shape != shape:
            raise ValueError(f"{what} has shape {each.shape}, but must have {shape}")


def joined(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape of `size` arrays along the first axis."""
    return (size * shape[0], *shape[1:]) if shape else (size,)


def length_of_part(shape: tuple[int, ...], size: int, what: str) -> int:
    """The length of one of `size` parts; ValueError if the first axis has no equal parts."""
    if not shape or shape[0] % size:
        raise ValueError(
            f"{what} has shape {shape}: its first axis cannot be split into {size} equal parts"
        )
    return shape[0] // size


def part(x: Any, number: int, shape: tuple[int, ...]) -> Any:
    """Part `number` of `x`, of this shape: a view."""
    if not shape:
        return x[number]
    return x[number * shape[0] : (number + 1) * shape[0]]


def as_rank(comm: Communicator, rank: Any, what: str) -> int:
    """A rank of the communicator; ValueError beyond its size, TypeError for a non-integer."""
    found = whole(rank, what)
    if not 0 <= found < comm.size:
        raise ValueError(f"{what}={found} is not a rank: ranks go from 0 to {comm.size - 1}")
    return found


def writable(outs: Sequence[Any], what: str) -> None:
    """ValueError for a read-only array, and for arrays that share bytes."""
    seen: list[tuple[int, int]] = []
    for each in outs:
        if each.is_read_only:
            raise ValueError(f"{what} is read-only: give a copy")
        seen.append(each.region)
    if len(seen) == 1:
        return
    ordered = sorted(region[:2] for region in seen if region[0] < region[1])
    for (_, end), (start, _) in pairwise(ordered):
        if start < end:
            raise ValueError(f"{what}: the arrays of two ranks share memory")


def apart(outs: Sequence[Any], ins: Sequence[Any], what: str) -> None:
    """ValueError if an output shares bytes with an input.

    They may be the same elements on one rank.
    """
    for i, out in enumerate(outs):
        for j, x in enumerate(ins):
            if out is None or x is None or (i == j and is_same(out, x)):
                continue
            if out.region[0] < x.region[1] and x.region[0] < out.region[1]:
                raise ValueError(f"{what}: out shares memory with another input: give a copy")


def is_same(x: Any, y: Any) -> bool:
    """True for the same elements of the same memory."""
    return bool(x.ptr == y.ptr and x.shape == y.shape and x.strides == y.strides)
