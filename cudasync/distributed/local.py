"""Floor 5. The local communicator: the devices of this process, which drives all ranks.

Each collective is a few copies between devices and elementwise operations on them. So hazards,
poison, graphs and the profile need no special case.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from cudasync import xp
from cudasync.array import copy, empty, empty_like
from cudasync.distributed import argument_checks
from cudasync.distributed.argument_checks import alike, joined, length_of_part, listed, part
from cudasync.distributed.communicator import Communicator, Group, parts_of
from cudasync.distributed.reductions import checked
from cudasync.distributed.scratch import Scratch
from cudasync.distributed.steps import (
    RING_FROM_BYTES,
    chunks,
    move,
    ring_gather,
    ring_reduce,
    tree_broadcast,
    tree_reduce,
)
from cudasync.distributed.work import Work, work_of
from cudasync.engine.general_push import as_priority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LocalCommunicator(Communicator):
    """Each rank is a device of this process, or the CPU. A device may be several ranks."""

    backend = "local"

    def __init__(self, devices: Sequence[Any]) -> None:
        super().__init__(len(devices), tuple(range(len(devices))), tuple(devices))
        self._scratch = Scratch()
        # By sender and receiver: arrays that were sent and not received yet, in the receiver's
        # memory.
        self._sent: dict[tuple[int, int], deque[Any]] = {}

    def raise_unless_it_computes(self, dtype: Any) -> None:
        checked("min", dtype)

    def all_reduce(self, x: Any, out: Any = None, *, op: str = "sum", priority: int = 0) -> Any:
        xs, outs = self._in_and_out(x, out)
        op = checked(op, xs[0].dtype)

        def run() -> list[Any]:
            if xs[0].nbytes < RING_FROM_BYTES or self.size == 1:
                tree_reduce(xs, outs[0], op, priority, self._scratch)
                tree_broadcast(outs, f"all_reduce {op}", priority)
                return outs
            flat_in = [_flat(each, is_read=True, priority=priority) for each in xs]
            flat_out = [
                came if made is given else _flat(made, is_read=False, priority=priority)
                for came, given, made in zip(flat_in, xs, outs, strict=True)
            ]
            parts = [chunks(each, self.size) for each in flat_in]
            done = [
                cut if made is came else chunks(made, self.size)
                for cut, came, made in zip(parts, flat_in, flat_out, strict=True)
            ]
            targets = [done[c][c] for c in range(self.size)]
            # Of two ranks, each part goes back at once: then the processor's caches still have it.
            for columns in [range(self.size)] if self.size > 2 else [[0], [1]]:
                ring_reduce(parts, targets, op, priority, self._scratch, columns)
                ring_gather(done, f"all_reduce {op}", priority, columns)
            for made, flat in zip(outs, flat_out, strict=True):
                if not made.is_contiguous:
                    copy(made, xp.reshape(flat, made.shape), name="all_reduce", priority=priority)
            return outs

        return self._launch(f"all_reduce {op}", run, priority)

    def all_gather(self, x: Any, out: Any, *, priority: int = 0) -> Any:
        xs, outs = argument_checks.lists(self, x, out)
        shape = xs[0].shape
        alike(xs, shape, xs[0].dtype, "x")
        alike(outs, joined(shape, self.size), xs[0].dtype, "out")
        parts = [[part(made, c, shape) for c in range(self.size)] for made in outs]
        for rank, each in enumerate(xs):
            others = [made if r != rank else None for r, made in enumerate(outs)]
            argument_checks.apart(
                [*others, *parts[rank]], [None] * (self.size + rank) + [each], "x"
            )

        def run() -> list[Any]:
            for rank, each in enumerate(xs):
                _set(parts[rank][rank], each, priority)
            ring_gather(parts, "all_gather", priority, range(self.size))
            return outs

        return self._launch("all_gather", run, priority)

    def reduce_scatter(self, x: Any, out: Any, *, op: str = "sum", priority: int = 0) -> Any:
        xs, outs = argument_checks.lists(self, x, out)
        op = checked(op, xs[0].dtype)
        alike(xs, xs[0].shape, xs[0].dtype, "x")
        length = length_of_part(xs[0].shape, self.size, "x")
        shape = (length, *xs[0].shape[1:])
        alike(outs, shape, xs[0].dtype, "out")
        parts = [[part(each, c, shape) for c in range(self.size)] for each in xs]
        for rank, made in enumerate(outs):
            read = [each for row in parts for each in row]
            own = rank * self.size + rank
            argument_checks.apart([None] * own + [made], read, "x")

        def run() -> list[Any]:
            if self.size == 1:
                _set(outs[0], parts[0][0], priority)
            else:
                ring_reduce(parts, outs, op, priority, self._scratch, range(self.size))
            return outs

        return self._launch(f"reduce_scatter {op}", run, priority)

    def broadcast(self, x: Any, root: int = 0, *, priority: int = 0) -> Any:
        root = argument_checks.as_rank(self, root, "root")
        xs, _ = self._in_and_out(x, None)

        def run() -> list[Any]:
            tree_broadcast(_from(xs, root), "broadcast", priority)
            return xs

        return self._launch("broadcast", run, priority)

    def reduce(
        self, x: Any, out: Any = None, *, op: str = "sum", root: int = 0, priority: int = 0
    ) -> Any:
        self.raise_if_over()
        root = argument_checks.as_rank(self, root, "root")
        xs = listed(self, x, "x")
        target = xs[root] if out is None else listed(self, out, "out", (root,))[root]
        op = checked(op, xs[0].dtype)
        alike([*xs, target], xs[0].shape, xs[0].dtype, "x or out")
        argument_checks.writable([target], "out")
        argument_checks.apart([None] * root + [target], xs, "x")

        def run() -> list[Any]:
            tree_reduce(_from(xs, root), target, op, priority, self._scratch, root)
            return [target]

        return self._launch(f"reduce {op}", run, priority)

    def gather(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        self.raise_if_over()
        root = argument_checks.as_rank(self, root, "root")
        xs, target = listed(self, x, "x"), listed(self, out, "out", (root,))[root]
        shape = xs[0].shape
        alike(xs, shape, xs[0].dtype, "x")
        alike([target], joined(shape, self.size), xs[0].dtype, "out")
        argument_checks.writable([target], "out")
        parts = [part(target, c, shape) for c in range(self.size)]
        argument_checks.apart(
            parts, [each if r == root else None for r, each in enumerate(xs)], "x"
        )
        argument_checks.apart([target], [None, *xs[:root], *xs[root + 1 :]], "x")

        def run() -> list[Any]:
            for made, each in zip(parts, xs, strict=True):
                _set(made, each, priority)
            return [target]

        return self._launch("gather", run, priority)

    def scatter(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        self.raise_if_over()
        root = argument_checks.as_rank(self, root, "root")
        source, outs = listed(self, x, "x", (root,))[root], listed(self, out, "out")
        shape = (length_of_part(source.shape, self.size, "x"), *source.shape[1:])
        alike(outs, shape, source.dtype, "out")
        argument_checks.writable(outs, "out")
        parts = [part(source, c, shape) for c in range(self.size)]
        argument_checks.apart(
            [each if r == root else None for r, each in enumerate(outs)], parts, "x"
        )
        argument_checks.apart([*outs[:root], *outs[root + 1 :]], [None] * self.size + [source], "x")

        def run() -> list[Any]:
            for made, each in zip(outs, parts, strict=True):
                _set(made, each, priority)
            return outs

        return self._launch("scatter", run, priority)

    def all_to_all(self, x: Any, out: Any = None, *, priority: int = 0) -> Any:
        xs, outs = self._in_and_out(x, out)
        shape = (length_of_part(xs[0].shape, self.size, "x"), *xs[0].shape[1:])

        def run() -> list[Any]:
            is_in_place = [any(made.ptr == each.ptr for each in xs) for made in outs]
            arrived = []
            for rank, made in enumerate(outs):
                into = empty_like(made) if is_in_place[rank] else made
                for source, each in enumerate(xs):
                    _set(part(into, source, shape), part(each, rank, shape), priority)
                arrived.append(into)
            for made, into in zip(outs, arrived, strict=True):
                if into is not made:
                    copy(made, into, name="all_to_all", priority=priority)
            return outs

        return self._launch("all_to_all", run, priority)

    def send(self, x: Any, to: int, *, rank: int | None = None, priority: int = 0) -> Any:
        here, to, x = argument_checks.end(self, x, rank, to, what="to", role="x")
        way = (here, to)
        if self._group is not None:
            self._group.sent[len(self._group.calls)] = way, x

        def run() -> list[Any]:
            box = empty(x.shape, x.dtype, device=self.devices[way[1]])
            move(box, x, f"send to {way[1]}", priority)
            self._sent.setdefault(way, deque()).append(box)
            return [box]

        return self._launch(f"send to {to}", run, priority)

    def recv(self, out: Any, source: int, *, rank: int | None = None, priority: int = 0) -> Any:
        here, source, out = argument_checks.end(self, out, rank, source, what="source", role="out")
        argument_checks.writable([out], "out")
        way = (source, here)
        if self._group is not None:
            self._group.received[len(self._group.calls)] = way, out
        else:
            fit([*self._sent.get(way, ())], [out], way)

        def run() -> list[Any]:
            box = self._sent[way].popleft()
            move(out, box, f"recv from {way[0]}", priority)
            return [out]

        return self._launch(f"recv from {source}", run, priority)

    def barrier(self, timeout: float | None = None) -> None:
        self.wait_for_launched(timeout)

    def split(self, color: Any, key: Any = None) -> Any:
        self.raise_if_over()
        return parts_of(self, color, key, LocalCommunicator)

    def launch(self, group: Group) -> None:
        for way in {way for way, _ in group.received.values()}:
            sent = [x for at, x in group.sent.values() if at == way]
            outs = [out for at, out in group.received.values() if at == way]
            fit([*self._sent.get(way, ()), *sent], outs, way)
        # A recv that precedes its send comes last, in order.
        late: dict[int, tuple[int, int]] = {}
        works: dict[int, Work] = {}
        for number, call in enumerate(group.calls):
            received = group.received.get(number)
            if received and (received[0] in late.values() or not self._sent.get(received[0])):
                late[number] = received[0]
            else:
                works[number] = call()
        works |= {number: group.calls[number]() for number in late}
        group.works = [works[number] for number in range(len(group.calls))]

    def _in_and_out(self, x: Any, out: Any) -> tuple[list[Any], list[Any]]:
        """Inputs and outputs of one shape; without `out` the inputs are written in place."""
        xs, outs = argument_checks.lists(self, x, x if out is None else out)
        alike([*xs, *outs], xs[0].shape, xs[0].dtype, "x or out")
        argument_checks.apart(outs, xs, "x")
        return xs, outs

    def _launch(self, name: str, run: Callable[[], list[Any]], priority: Any) -> Any:
        # Before the first step: not every step has a priority.
        as_priority(priority)

        def call() -> Work:
            return self.noted(work_of(name, run()))

        return self.launched(call)


def fit(sent: Sequence[Any], outs: Sequence[Any], way: tuple[int, int]) -> None:
    """ValueError for a recv without a send, or of another shape; TypeError for another dtype."""
    if len(outs) > len(sent):
        raise ValueError(
            f"rank {way[1]} receives before rank {way[0]} has sent, and one process drives both: "
            f"send first, or put both calls in a group()"
        )
    for out, x in zip(outs, sent, strict=False):
        alike([out], x.shape, x.dtype, "out")


def _from(arrays: Sequence[Any], root: int) -> list[Any]:
    """Arrays by distance from the root."""
    return [*arrays[root:], *arrays[:root]]


def _set(target: Any, source: Any, priority: int) -> None:
    """Push a copy to a view of the same size; for 0-d arrays the view has another shape."""
    if not argument_checks.is_same(target, source):
        move(target, source, "part", priority)


def _flat(x: Any, *, is_read: bool, priority: int) -> Any:
    """A one-dimensional view of `x`, or of new memory if `x` has gaps."""
    if not x.is_contiguous:
        made = empty_like(x)
        if is_read:
            copy(made, x, name="all_reduce (aside)", priority=priority)
        x = made
    return x if x.ndim == 1 else xp.reshape(x, (-1,))
