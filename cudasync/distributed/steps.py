"""Floor 5. The steps of local collectives: chains of copies and reductions, as ring and as tree.

Every step is a push. The engine's hazards let a step write a caller's array only after the last
step that reads it. Parts under way are in scratch memory.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cudasync.array import copy
from cudasync.distributed.reductions import can_read, combine, finish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.distributed.scratch import Scratch

# A tree has fewer steps and serves shorter arrays. From this size on, a ring moves fewer bytes.
RING_FROM_BYTES = 64 << 10


def move(target: Any, source: Any, name: str, priority: int) -> None:
    """Push a copy, unless both are the same elements."""
    if target.size and not (target.ptr == source.ptr and target.strides == source.strides):
        copy(target, source, name=name, priority=priority)


def brought(
    x: Any, own: Any, target: Any, aside: Callable[[], Any], op: str, priority: int
) -> tuple[Any, Any]:
    """Another rank's `x`, where the rank of `own` can read it, and where the combination goes:
    to `target`, or aside if that is None.

    A part that cannot be read where it is travels to new memory, and is overwritten there.
    """
    if can_read(own, x):
        return x, aside() if target is None else target
    arrived = aside()
    move(arrived, x, f"{op} hop", priority)
    return arrived, arrived if target is None else target


class Partial:
    """A part that travels from rank to rank and is combined with each rank's own elements.

    `at` has each rank's own elements, from the rank `first` on, where the part starts. The last
    rank leaves the result in its `target`.
    """

    def __init__(
        self, at: Sequence[Any], first: int, target: Any, op: str, priority: int, scratch: Scratch
    ) -> None:
        self.at = at
        self.first = first
        self.scratch = scratch
        self.target = target
        self.op = op
        self.priority = priority
        self.now = at[0]

    def step(self, number: int) -> None:
        """Go to the next rank; `number` counts from 1."""
        own = self.at[number]
        is_last = number == len(self.at) - 1
        rank = (self.first + number) % len(self.at)
        arrived, self.now = brought(
            self.now,
            own,
            self.target if is_last else None,
            partial(self.scratch.like, own, rank),
            self.op,
            self.priority,
        )
        combine(self.op, arrived, own, self.now)
        if is_last:
            finish(self.op, self.now, len(self.at))


def ring_reduce(
    parts: Sequence[Sequence[Any]],
    targets: Sequence[Any],
    op: str,
    priority: int,
    scratch: Scratch,
    columns: Sequence[int],
) -> None:
    """`targets[c]`, on rank c, becomes the reduction of `parts[rank][c]` of all ranks, for each c
    of `columns`.

    Part c starts on rank c + 1 and visits all ranks, so its bits depend on the ranks and c alone.
    All parts travel at once, each on another rank.
    """
    size = len(parts)
    chains = [
        Partial(
            [parts[(c + 1 + k) % size][c] for k in range(size)],
            (c + 1) % size,
            targets[c],
            op,
            priority,
            scratch,
        )
        for c in columns
        if targets[c].size
    ]
    for number in range(1, size):
        for chain in chains:
            chain.step(number)


def ring_gather(
    parts: Sequence[Sequence[Any]], name: str, priority: int, columns: Sequence[int]
) -> None:
    """`parts[rank][c]` becomes `parts[c][c]` on every rank, for each c of `columns`, passed from
    neighbour to neighbour."""
    size = len(parts)
    for step in range(size - 1):
        for c in columns:
            rank = (c + step) % size
            move(parts[(rank + 1) % size][c], parts[rank][c], name, priority)


def tree_reduce(
    at: Sequence[Any], target: Any, op: str, priority: int, scratch: Scratch, first: int = 0
) -> None:
    """`target`, beside `at[0]`, becomes the reduction of all; pairs, pairs of pairs, and so on.

    `first` is the rank of `at[0]`.
    """
    now = list(at)
    distance = 1
    while distance < len(now):
        for low in range(0, len(now) - distance, 2 * distance):
            target_now = target if 2 * distance >= len(now) and low == 0 else None
            arrived, into = brought(
                now[low + distance],
                at[low],
                target_now,
                partial(scratch.like, at[low], (first + low) % len(at)),
                op,
                priority,
            )
            combine(op, now[low], arrived, into)
            now[low] = into
        distance *= 2
    if len(at) == 1:
        move(target, at[0], op, priority)
    finish(op, target, len(at))


def tree_broadcast(at: Sequence[Any], name: str, priority: int) -> None:
    """All arrays become `at[0]`: each rank that has it passes it on."""
    distance = 1
    while distance < len(at):
        for have in range(min(distance, len(at) - distance)):
            move(at[have + distance], at[have], name, priority)
        distance *= 2


def chunks(flat: Any, count: int) -> list[Any]:
    """`flat` in `count` runs whose lengths differ by at most one."""
    bounds = [flat.size * number // count for number in range(count + 1)]
    return [flat[start:end] for start, end in pairwise(bounds)]
