"""Floor 5. The communicator between GPUs, by NCCL: one rank in each process, on its device.

A collective is a device op: NCCL's call on a stream of the engine's, after the ones before it by a
token. Its ranks meet by MPI, which hands on NCCL's id; alone in a process it needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array import copy, empty, zeros
from cudasync.distributed import checking
from cudasync.distributed.checking import (
    alike,
    joined,
    length_of_part,
    listed,
    one_color,
    one_pair,
    other_rank,
)
from cudasync.distributed.communicator import Communicator, Group
from cudasync.distributed.nccl_library import BYTES, OPS, Link, new_id, type_of
from cudasync.distributed.reducing import checked
from cudasync.distributed.watching import Watchdog, WatchedWork
from cudasync.engine import Var, engine
from cudasync.graph.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.distributed.mpi_library import Ranks

    # The call: the library, the addresses of input and output (0 for none), handle, stream.
    Native = Callable[[Any, int, int, Any, int], object]


@dataclass(frozen=True, slots=True)
class _Call:
    """One call that was checked; calling it launches it alone."""

    comm: NcclCommunicator
    name: str
    x: Any
    out: Any
    native: Native
    priority: int

    def __call__(self) -> Any:
        return self.comm._push([self])[0]


class NcclCommunicator(Communicator):
    """GPUs, one a process; each process gives one array a call, alone or in a list.

    On a GPU a send waits for its recv, and holds up what comes later on this communicator: put
    those of one exchange in a `group()`.
    """

    backend = "nccl"

    def __init__(self, ranks: Ranks | None, device: Any, timeout: float) -> None:
        size, rank = (1, 0) if ranks is None else (ranks.size, ranks.rank)
        super().__init__(size, (rank,), (device,))
        self._ranks = ranks
        identity = new_id() if rank == 0 else np.empty(128, np.uint8)
        if ranks is not None:
            ranks.broadcast(identity, 0, ("init", 0, timeout))
        device.context.enter_anew()
        self._link = Link(size, rank, identity, timeout)
        self._token = Var()
        self._watchdog = Watchdog(self._link)

    @property
    def broken_by(self) -> str | None:
        """What failed first between ranks."""
        found = self._link.broken_by
        return None if found is None else str(found)

    def all_reduce(self, x: Any, out: Any = None, *, op: str = "sum", priority: int = 0) -> Any:
        x, out = one_pair(self, x, x if out is None else out)
        kind, code = _reduction(op, x)
        alike([out], x.shape, x.dtype, "out")
        count = x.size
        return self._launch(
            f"all_reduce {op}", x, out, priority,
            lambda nccl, a, b, comm, s: nccl.all_reduce(a, b, count, kind, code, comm, s),
        )  # fmt: skip

    def all_gather(self, x: Any, out: Any, *, priority: int = 0) -> Any:
        x, out = one_pair(self, x, out)
        alike([out], joined(x.shape, self.size), x.dtype, "out")
        size = x.nbytes
        return self._launch(
            "all_gather", x, out, priority,
            lambda nccl, a, b, comm, s: nccl.all_gather(a, b, size, BYTES, comm, s),
        )  # fmt: skip

    def reduce_scatter(self, x: Any, out: Any, *, op: str = "sum", priority: int = 0) -> Any:
        x, out = one_pair(self, x, out)
        kind, code = _reduction(op, x)
        length = length_of_part(x.shape, self.size, "x")
        alike([out], (length, *x.shape[1:]), x.dtype, "out")
        count = out.size
        return self._launch(
            f"reduce_scatter {op}", x, out, priority,
            lambda nccl, a, b, comm, s: nccl.reduce_scatter(a, b, count, kind, code, comm, s),
        )  # fmt: skip

    def broadcast(self, x: Any, root: int = 0, *, priority: int = 0) -> Any:
        root = checking.as_rank(self, root, "root")
        x, _ = one_pair(self, x, x)
        size = x.nbytes
        return self._launch(
            "broadcast", x if root == self.rank else None, x, priority,
            lambda nccl, a, b, comm, s: nccl.broadcast(a or b, b, size, BYTES, root, comm, s),
        )  # fmt: skip

    def reduce(
        self, x: Any, out: Any = None, *, op: str = "sum", root: int = 0, priority: int = 0
    ) -> Any:
        root = checking.as_rank(self, root, "root")
        x, out = one_pair(self, x, (x if out is None else out) if root == self.rank else None)
        kind, code = _reduction(op, x)
        if out is not None:
            alike([out], x.shape, x.dtype, "out")
        count = x.size
        return self._launch(
            f"reduce {op}", x, out, priority,
            lambda nccl, a, b, comm, s: nccl.reduce(a, b, count, kind, code, root, comm, s),
        )  # fmt: skip

    def gather(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        root = checking.as_rank(self, root, "root")
        x, out = one_pair(self, x, out if root == self.rank else None, is_needed=root == self.rank)
        if out is not None:
            alike([out], joined(x.shape, self.size), x.dtype, "out")
        size = x.nbytes
        return self._launch(
            "gather", x, out, priority,
            lambda nccl, a, b, comm, s: nccl.gather(a, b, size, BYTES, root, comm, s),
        )  # fmt: skip

    def scatter(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        self.raise_if_over()
        root = checking.as_rank(self, root, "root")
        only = () if root != self.rank else (root,)
        (x,), (out,) = listed(self, x, "x", only), listed(self, out, "out")
        checking.writable([out], "out")
        if only:
            length = length_of_part(x.shape, self.size, "x")
            alike([out], (length, *x.shape[1:]), x.dtype, "out")
        size = out.nbytes
        return self._launch(
            "scatter", x if only else None, out, priority,
            lambda nccl, a, b, comm, s: nccl.scatter(a, b, size, BYTES, root, comm, s),
        )  # fmt: skip

    def all_to_all(self, x: Any, out: Any = None, *, priority: int = 0) -> Any:
        x, out = one_pair(self, x, x if out is None else out)
        alike([out], x.shape, x.dtype, "out")
        length_of_part(x.shape, self.size, "x")
        size = x.nbytes // self.size
        return self._launch(
            "all_to_all", x, out, priority,
            lambda nccl, a, b, comm, s: nccl.allto_all(a, b, size, BYTES, comm, s),
        )  # fmt: skip

    def send(self, x: Any, to: int, *, rank: int | None = None, priority: int = 0) -> Any:
        to = other_rank(self, to, "to", rank)
        x, _ = one_pair(self, x, None)
        size = x.nbytes
        return self._launch(
            f"send to {to}", x, None, priority,
            lambda nccl, a, b, comm, s: nccl.send(a, size, BYTES, to, comm, s),
        )  # fmt: skip

    def recv(self, out: Any, source: int, *, rank: int | None = None, priority: int = 0) -> Any:
        self.raise_if_over()
        source = other_rank(self, source, "source", rank)
        (out,) = listed(self, out, "out")
        checking.writable([out], "out")
        size = out.nbytes
        return self._launch(
            f"recv from {source}", None, out, priority,
            lambda nccl, a, b, comm, s: nccl.recv(b, size, BYTES, source, comm, s),
        )  # fmt: skip

    def barrier(self, timeout: float | None = None) -> None:
        self.wait_for_launched(timeout)
        # NCCL has none: all ranks have come once all have added one number.
        work = self.all_reduce(zeros(1, np.int32, device=self.devices[0]))
        if not isinstance(engine(), Recorder):
            work.wait(timeout)

    def split(self, color: Any, key: Any = None) -> Any:
        self.raise_if_over()
        color, key, is_listed = one_color(color, key)
        ranks, timeout = self._ranks, self._link.timeout
        if ranks is not None:
            ranks = ranks.split(color, key, ("split", 0, timeout))
        found = None if color is None else NcclCommunicator(ranks, self.devices[0], timeout)
        return [found] if is_listed else found

    def close(self) -> None:
        """Wait for what was launched and end the communicator, as all ranks have to."""
        if not self.is_closed:
            self.is_closed = True
            for work in self._launched:
                work.exception()
            self._watchdog.close()
            self._link.close()

    def launch(self, group: Group) -> None:
        calls: list[Any] = group.calls
        group.works = self._push(calls) if calls else []

    def _launch(self, name: str, x: Any, out: Any, priority: int, native: Native) -> Any:
        return self.launched(_Call(self, name, x, out, native, priority))

    def _push(self, calls: list[_Call]) -> list[Any]:
        """Push one device op for all of them, and what gathers and scatters arrays with gaps."""
        name = ", ".join(dict.fromkeys(call.name for call in calls))
        priority = max(call.priority for call in calls)
        inputs = [_readable(call, self) for call in calls]
        outputs = [_written(call) for call in calls]
        link = self._link

        def enqueue(stream: Any) -> None:
            def bound(call: _Call, x: Any, out: Any) -> Callable[[Any, Any], object]:
                a, b = (0 if each is None else int(each.ptr) for each in (x, out))
                return lambda nccl, comm: call.native(nccl, a, b, comm, stream.handle)

            link.do(name, [bound(*each) for each in zip(calls, inputs, outputs, strict=True)])

        current: Any = engine()
        current.push(
            enqueue,
            reads=[each for each in inputs if each is not None],
            writes=[*(each for each in outputs if each is not None), self._token],
            name=name,
            priority=priority,
            device=self.devices[0],
        )
        for call, made in zip(calls, outputs, strict=True):
            if made is not None and made is not call.out:
                copy(call.out, made, name=call.name, priority=priority)
        return [self._watched(call, current) for call in calls]

    def _watched(self, call: _Call, current: Any) -> WatchedWork:
        if isinstance(current, Recorder):
            return WatchedWork(call.name, None)
        written = [self._token] if call.out is None else [call.out, self._token]
        work = WatchedWork(call.name, current._mark(written))
        self._watchdog.watch(work)
        self.noted(work)
        return work


def _reduction(op: Any, x: Any) -> tuple[int, int]:
    return type_of(x.dtype), OPS[checked(op, x.dtype)]


def _readable(call: _Call, comm: NcclCommunicator) -> Any:
    """The input, or a copy: of one with gaps, and where NCCL would overwrite it too early."""
    x = call.x
    if x is None or (x.is_contiguous and not _overlaps(call, comm)):
        return x
    return x.copy()


def _overlaps(call: _Call, comm: NcclCommunicator) -> bool:
    x, out = call.x, call.out
    if out is None or x.region[1] <= out.region[0] or out.region[1] <= x.region[0]:
        return False
    if call.name == "all_to_all" or not out.is_contiguous:
        return True
    # In place as NCCL means it: the same, or this rank's part of the longer one.
    small, large = sorted((x, out), key=lambda each: int(each.nbytes))
    part = 0 if small.nbytes == large.nbytes else comm.rank * small.nbytes
    return bool(small.ptr != large.ptr + part)


def _written(call: _Call) -> Any:
    """The output, or new memory for one with gaps."""
    out = call.out
    if out is None or out.is_contiguous:
        return out
    return empty(out.shape, out.dtype, device=out.device)
