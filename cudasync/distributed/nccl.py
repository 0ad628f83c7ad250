"""Floor 5. The communicator between GPUs, by NCCL: one rank in each process, or one process alone.

A collective is a device op: NCCL's call on a stream of the engine's, ordered behind earlier calls
by a token. Ranks of several processes meet by MPI, which passes on NCCL's id. A process alone needs
no MPI, and may have several devices, a rank each. Then the op has a part on each device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array import copy, empty, zeros
from cudasync.distributed import argument_checks
from cudasync.distributed.argument_checks import alike, joined, length_of_part, listed, one_color
from cudasync.distributed.communicator import Communicator, Group, parts_of
from cudasync.distributed.nccl_library import BYTES, OPS, Link, new_id, type_of
from cudasync.distributed.reductions import checked
from cudasync.distributed.side_streams import StreamsBeside
from cudasync.distributed.watchdog import Watchdog, WatchedWork
from cudasync.engine import Var, engine
from cudasync.graph.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.distributed.ranks import Ranks

    # Arguments: the library, the addresses of input and output (0 for none), handle, stream.
    Native = Callable[[Any, int, int, Any, int], object]


@dataclass(frozen=True, slots=True)
class _Call:
    """One checked call; calling the object launches it alone.

    `xs` and `outs` have the input and output of each rank of this process, or None. A rank with
    neither has no part in the call.
    """

    comm: NcclCommunicator
    name: str
    xs: Sequence[Any]
    outs: Sequence[Any]
    native: Native
    priority: int

    def __call__(self) -> Any:
        return self.comm._push([self])[0]


class NcclCommunicator(Communicator):
    """GPUs, each a rank: one in each process, or several in a process alone.

    On a GPU a send waits for its recv, and delays later calls of this communicator. So put all
    sends and recvs of one exchange in a `group()`.
    """

    backend = "nccl"

    def __init__(self, ranks: Ranks | None, devices: Sequence[Any], timeout: float) -> None:
        if len(set(devices)) < len(devices):
            raise ValueError("NCCL takes each GPU once, but devices= names one twice")
        size, rank = (len(devices), 0) if ranks is None else (ranks.size, ranks.rank)
        here = tuple(range(rank, rank + len(devices)))
        super().__init__(size, here, tuple(devices))
        self._ranks = ranks
        identity = new_id() if rank == 0 else np.empty(128, np.uint8)
        if ranks is not None:
            ranks.run(ranks.broadcast(identity, 0), ("init", 0, timeout))
        self._link = Link(size, list(zip(here, devices, strict=True)), identity, timeout)
        self._streams = StreamsBeside(devices)
        self._token = Var()
        self._watchdog = Watchdog(self._link)

    @property
    def broken_by(self) -> str | None:
        """The first failure between ranks."""
        found = self._link.broken_by
        return None if found is None else str(found)

    def raise_unless_it_computes(self, dtype: Any) -> None:
        type_of(dtype)

    def all_reduce(self, x: Any, out: Any = None, *, op: str = "sum", priority: int = 0) -> Any:
        xs, outs = argument_checks.lists(self, x, x if out is None else out)
        kind, code = _reduction(op, xs[0])
        alike([*xs, *outs], xs[0].shape, xs[0].dtype, "x or out")
        count = xs[0].size
        return self._launch(
            f"all_reduce {op}", xs, outs, priority,
            lambda nccl, a, b, comm, s: nccl.all_reduce(a, b, count, kind, code, comm, s),
        )  # fmt: skip

    def all_gather(self, x: Any, out: Any, *, priority: int = 0) -> Any:
        xs, outs = argument_checks.lists(self, x, out)
        alike(xs, xs[0].shape, xs[0].dtype, "x")
        alike(outs, joined(xs[0].shape, self.size), xs[0].dtype, "out")
        size = xs[0].nbytes
        return self._launch(
            "all_gather", xs, outs, priority,
            lambda nccl, a, b, comm, s: nccl.all_gather(a, b, size, BYTES, comm, s),
        )  # fmt: skip

    def reduce_scatter(self, x: Any, out: Any, *, op: str = "sum", priority: int = 0) -> Any:
        xs, outs = argument_checks.lists(self, x, out)
        kind, code = _reduction(op, xs[0])
        alike(xs, xs[0].shape, xs[0].dtype, "x")
        length = length_of_part(xs[0].shape, self.size, "x")
        alike(outs, (length, *xs[0].shape[1:]), xs[0].dtype, "out")
        count = outs[0].size
        return self._launch(
            f"reduce_scatter {op}", xs, outs, priority,
            lambda nccl, a, b, comm, s: nccl.reduce_scatter(a, b, count, kind, code, comm, s),
        )  # fmt: skip

    def broadcast(self, x: Any, root: int = 0, *, priority: int = 0) -> Any:
        root = argument_checks.as_rank(self, root, "root")
        xs, _ = argument_checks.lists(self, x, x)
        alike(xs, xs[0].shape, xs[0].dtype, "x")
        size = xs[0].nbytes
        return self._launch(
            "broadcast", self._only(root, xs), xs, priority,
            lambda nccl, a, b, comm, s: nccl.broadcast(a or b, b, size, BYTES, root, comm, s),
        )  # fmt: skip

    def reduce(
        self, x: Any, out: Any = None, *, op: str = "sum", root: int = 0, priority: int = 0
    ) -> Any:
        self.raise_if_over()
        root = argument_checks.as_rank(self, root, "root")
        xs = listed(self, x, "x")
        outs = self._only(root, xs if out is None else listed(self, out, "out", (root,)))
        kind, code = _reduction(op, xs[0])
        made = [each for each in outs if each is not None]
        alike([*xs, *made], xs[0].shape, xs[0].dtype, "x or out")
        argument_checks.writable(made, "out")
        count = xs[0].size
        return self._launch(
            f"reduce {op}", xs, outs, priority,
            lambda nccl, a, b, comm, s: nccl.reduce(a, b, count, kind, code, root, comm, s),
        )  # fmt: skip

    def gather(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        self.raise_if_over()
        root = argument_checks.as_rank(self, root, "root")
        xs, outs = listed(self, x, "x"), self._only(root, listed(self, out, "out", (root,)))
        made = [each for each in outs if each is not None]
        alike(xs, xs[0].shape, xs[0].dtype, "x")
        alike(made, joined(xs[0].shape, self.size), xs[0].dtype, "out")
        argument_checks.writable(made, "out")
        size = xs[0].nbytes
        return self._launch(
            "gather", xs, outs, priority,
            lambda nccl, a, b, comm, s: nccl.gather(a, b, size, BYTES, root, comm, s),
        )  # fmt: skip

    def scatter(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        self.raise_if_over()
        root = argument_checks.as_rank(self, root, "root")
        xs, outs = self._only(root, listed(self, x, "x", (root,))), listed(self, out, "out")
        argument_checks.writable(outs, "out")
        alike(outs, outs[0].shape, outs[0].dtype, "out")
        for each in xs:
            if each is not None:
                length = length_of_part(each.shape, self.size, "x")
                alike(outs, (length, *each.shape[1:]), each.dtype, "out")
        size = outs[0].nbytes
        return self._launch(
            "scatter", xs, outs, priority,
            lambda nccl, a, b, comm, s: nccl.scatter(a, b, size, BYTES, root, comm, s),
        )  # fmt: skip

    def all_to_all(self, x: Any, out: Any = None, *, priority: int = 0) -> Any:
        xs, outs = argument_checks.lists(self, x, x if out is None else out)
        alike([*xs, *outs], xs[0].shape, xs[0].dtype, "x or out")
        length_of_part(xs[0].shape, self.size, "x")
        size = xs[0].nbytes // self.size
        return self._launch(
            "all_to_all", xs, outs, priority,
            lambda nccl, a, b, comm, s: nccl.allto_all(a, b, size, BYTES, comm, s),
        )  # fmt: skip

    def send(self, x: Any, to: int, *, rank: int | None = None, priority: int = 0) -> Any:
        here, to, x = argument_checks.end(self, x, rank, to, what="to", role="x")
        size = x.nbytes
        return self._launch(
            f"send to {to}", self._only(here, [x] * len(self.ranks)), (), priority,
            lambda nccl, a, b, comm, s: nccl.send(a, size, BYTES, to, comm, s),
        )  # fmt: skip

    def recv(self, out: Any, source: int, *, rank: int | None = None, priority: int = 0) -> Any:
        here, source, out = argument_checks.end(self, out, rank, source, what="source", role="out")
        argument_checks.writable([out], "out")
        size = out.nbytes
        return self._launch(
            f"recv from {source}", (), self._only(here, [out] * len(self.ranks)), priority,
            lambda nccl, a, b, comm, s: nccl.recv(b, size, BYTES, source, comm, s),
        )  # fmt: skip

    def barrier(self, timeout: float | None = None) -> None:
        self.wait_for_launched(timeout)
        # NCCL has no barrier: all ranks have arrived once an all_reduce of one number is over.
        work = self.all_reduce([zeros(1, np.int32, device=each) for each in self.devices])
        if not isinstance(engine(), Recorder):
            work.wait(timeout)

    def split(self, color: Any, key: Any = None) -> Any:
        self.raise_if_over()
        timeout = self._link.timeout
        if len(self.ranks) > 1:
            return parts_of(self, color, key, lambda found: NcclCommunicator(None, found, timeout))
        color, key, is_listed = one_color(color, key)
        ranks = self._ranks
        if ranks is not None:
            ranks = ranks.run(ranks.split(color, key), ("split", 0, timeout))
        found = None if color is None else NcclCommunicator(ranks, self.devices, timeout)
        return [found] if is_listed else found

    def close(self) -> None:
        """Wait for launched calls and end the communicator; all ranks must call it."""
        if not self.is_closed:
            self.is_closed = True
            for work in self._launched:
                work.exception()
            self._watchdog.close()
            self._link.close()
            self._streams.close()

    def launch(self, group: Group) -> None:
        calls: list[Any] = group.calls
        group.works = self._push(calls) if calls else []

    def _only(self, rank: int, arrays: Sequence[Any]) -> list[Any]:
        """The array of one rank, None for the other ranks."""
        return [each if r == rank else None for r, each in zip(self.ranks, arrays, strict=True)]

    def _launch(
        self, name: str, xs: Sequence[Any], outs: Sequence[Any], priority: int, native: Native
    ) -> Any:
        nothing = (None,) * len(self.ranks)
        call = _Call(self, name, xs or nothing, outs or nothing, native, priority)
        return self.launched(call)

    def _push(self, calls: list[_Call]) -> list[Any]:
        """Push one device op for all calls, and copies for arrays with gaps."""
        name = ", ".join(dict.fromkeys(call.name for call in calls))
        priority = max(call.priority for call in calls)
        parts = [
            _Part(call, at, _readable(call, x, out, rank), _written(out), out)
            for call in calls
            for at, (rank, x, out) in enumerate(zip(self.ranks, call.xs, call.outs, strict=True))
            if x is not None or out is not None
        ]
        link, streams = self._link, self._streams

        def enqueue(stream: Any) -> None:
            with streams.beside(stream) as handles:
                link.do(name, [(part.at, part.on(handles[part.at])) for part in parts])

        current: Any = engine()
        current.push(
            enqueue,
            reads=[part.x for part in parts if part.x is not None],
            writes=[*(part.made for part in parts if part.made is not None), self._token],
            name=name,
            priority=priority,
            device=self.devices[0],
        )
        for part in parts:
            if part.made is not part.out:
                copy(part.out, part.made, name=part.call.name, priority=priority)
        return [self._watched(call, current) for call in calls]

    def _watched(self, call: _Call, current: Any) -> WatchedWork:
        if isinstance(current, Recorder):
            return WatchedWork(call.name, None)
        written = [each for each in call.outs if each is not None]
        work = WatchedWork(call.name, current._mark([*written, self._token]))
        self._watchdog.watch(work)
        self.noted(work)
        return work


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a call on one rank, number `at` of this process; `made` becomes its `out`."""

    call: _Call
    at: int
    x: Any
    made: Any
    out: Any

    def on(self, stream: int) -> Callable[[Any, Any], object]:
        """This part's call of NCCL, which takes the library and the rank's handle."""
        a, b = (0 if each is None else int(each.ptr) for each in (self.x, self.made))
        return lambda nccl, comm: self.call.native(nccl, a, b, comm, stream)


def _reduction(op: Any, x: Any) -> tuple[int, int]:
    return type_of(x.dtype), OPS[checked(op, x.dtype)]


def _readable(call: _Call, x: Any, out: Any, rank: int) -> Any:
    """The input, or a copy if it has gaps or NCCL would overwrite it too early."""
    if x is None or (x.is_contiguous and not _overlaps(call, x, out, rank)):
        return x
    return x.copy()


def _overlaps(call: _Call, x: Any, out: Any, rank: int) -> bool:
    if out is None or x.region[1] <= out.region[0] or out.region[1] <= x.region[0]:
        return False
    if call.name == "all_to_all" or not out.is_contiguous:
        return True
    # In place in NCCL's sense: the same memory, or this rank's part of the longer array.
    small, large = sorted((x, out), key=lambda each: int(each.nbytes))
    part = 0 if small.nbytes == large.nbytes else rank * small.nbytes
    return bool(small.ptr != large.ptr + part)


def _written(out: Any) -> Any:
    """The output, or new memory if the output has gaps."""
    if out is None or out.is_contiguous:
        return out
    return empty(out.shape, out.dtype, device=out.device)
