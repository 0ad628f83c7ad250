"""Floor 5. The communicator between processes, by MPI: one rank in each.

A collective is a host op on a worker of its own, after the ones before it by a token. Arrays on the
CPU are read and written where they are; those of a device go through the CPU, whole.
"""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array import copy, empty
from cudasync.array.host.memory import CPU, view_of
from cudasync.distributed import checking, mpi_library
from cudasync.distributed.checking import alike, joined, length_of_part, listed
from cudasync.distributed.communicator import Communicator, Group
from cudasync.distributed.errors import CommunicatorBroken
from cudasync.distributed.reducing import checked
from cudasync.distributed.work import Work, work_of
from cudasync.engine import Var, engine
from cudasync.engine.host.further import with_pool
from cudasync.errors import ClosedError
from cudasync.graph.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    # What a call does on host memory: its input and output, contiguous, None where there is none.
    Does = Callable[[Any, Any, tuple[str, int, float]], None]

_numbers = count()


class MpiCommunicator(Communicator):
    """The processes that mpiexec started; each gives one array a call, alone or in a list."""

    backend = "mpi"

    def __init__(self, ranks: mpi_library.Ranks, device: Any, timeout: float) -> None:
        super().__init__(ranks.size, (ranks.rank,), (device,))
        self.timeout = timeout
        self._ranks = ranks
        self._pool = f"mpi {next(_numbers)}"
        self._token = Var()
        self._pushed = count()
        # The numbers of the ops that were pushed and did not run: each runs, or a later one tells.
        self._due: deque[int] = deque()
        # What was sent is still on its way when a program ends.
        atexit.register(_flush, weakref.ref(self))

    def all_reduce(self, x: Any, out: Any = None, *, op: str = "sum", priority: int = 0) -> Any:
        x, out = self._pair(x, x if out is None else out)
        op = self._reduction(op, x)
        alike([out], x.shape, x.dtype, "out")

        def does(sent: Any, got: Any, limit: Any) -> None:
            if sent is not got:
                np.copyto(got, sent)
            self._ranks.all_reduce(got, got, op, limit)
            self._mean(op, got)

        return self._launch(f"all_reduce {op}", x, out, does, priority)

    def all_gather(self, x: Any, out: Any, *, priority: int = 0) -> Any:
        x, out = self._pair(x, out)
        alike([out], joined(x.shape, self.size), x.dtype, "out")
        _raise_if_long(out.nbytes, "bytes")

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.all_gather(sent, got, limit)

        return self._launch("all_gather", x, out, does, priority)

    def reduce_scatter(self, x: Any, out: Any, *, op: str = "sum", priority: int = 0) -> Any:
        x, out = self._pair(x, out)
        op = self._reduction(op, x)
        length = length_of_part(x.shape, self.size, "x")
        alike([out], (length, *x.shape[1:]), x.dtype, "out")

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.reduce_scatter(sent, got, op, limit)
            self._mean(op, got)

        return self._launch(f"reduce_scatter {op}", x, out, does, priority)

    def broadcast(self, x: Any, root: int = 0, *, priority: int = 0) -> Any:
        root = checking.as_rank(self, root, "root")
        x, _ = self._pair(x, x if root != self.rank else None)
        _raise_if_long(x.nbytes, "bytes")

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.broadcast(sent if got is None else got, root, limit)

        if root == self.rank:
            return self._launch("broadcast", x, None, does, priority)
        return self._launch("broadcast", None, x, does, priority)

    def reduce(
        self, x: Any, out: Any = None, *, op: str = "sum", root: int = 0, priority: int = 0
    ) -> Any:
        root = checking.as_rank(self, root, "root")
        x, out = self._pair(x, (x if out is None else out) if root == self.rank else None)
        op = self._reduction(op, x)
        if out is not None:
            alike([out], x.shape, x.dtype, "out")

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.reduce(sent.copy() if sent is got else sent, got, op, root, limit)
            if got is not None:
                self._mean(op, got)

        return self._launch(f"reduce {op}", x, out, does, priority)

    def gather(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        root = checking.as_rank(self, root, "root")
        x, out = self._pair(x, out if root == self.rank else None, is_needed=root == self.rank)
        if out is not None:
            alike([out], joined(x.shape, self.size), x.dtype, "out")
        _raise_if_long(x.nbytes * self.size, "bytes")

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.gather(sent, got, root, limit)

        return self._launch("gather", x, out, does, priority)

    def scatter(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        self.raise_if_over()
        root = checking.as_rank(self, root, "root")
        only = () if root != self.rank else (root,)
        (x,), (out,) = listed(self, x, "x", only), listed(self, out, "out")
        checking.writable([out], "out")
        if root == self.rank:
            length = length_of_part(x.shape, self.size, "x")
            alike([out], (length, *x.shape[1:]), x.dtype, "out")
        _raise_if_long(out.nbytes * self.size, "bytes")

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.scatter(sent, got, root, limit)

        return self._launch("scatter", x if only else None, out, does, priority)

    def all_to_all(self, x: Any, out: Any = None, *, priority: int = 0) -> Any:
        x, out = self._pair(x, x if out is None else out)
        alike([out], x.shape, x.dtype, "out")
        length_of_part(x.shape, self.size, "x")
        _raise_if_long(x.nbytes, "bytes")

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.all_to_all(sent.copy() if sent is got else sent, got, limit)

        return self._launch("all_to_all", x, out, does, priority)

    def send(self, x: Any, to: int, *, rank: int | None = None, priority: int = 0) -> Any:
        to = self._other(to, "to", rank)
        x, _ = self._pair(x, None)
        _raise_if_long(x.nbytes, "bytes")

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.send(sent.copy(), to)

        return self._launch(f"send to {to}", x, None, does, priority)

    def recv(self, out: Any, source: int, *, rank: int | None = None, priority: int = 0) -> Any:
        self.raise_if_over()
        source = self._other(source, "source", rank)
        (out,) = listed(self, out, "out")
        checking.writable([out], "out")
        _raise_if_long(out.nbytes, "bytes")

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.receive(got, source, limit)

        return self._launch(f"recv from {source}", None, out, does, priority)

    def barrier(self, timeout: float | None = None) -> None:
        self.wait_for_launched(timeout)

        def does(sent: Any, got: Any, limit: Any) -> None:
            self._ranks.barrier(limit)

        work = self._push("barrier", None, None, does, 0)
        if isinstance(engine(), Recorder):
            return
        work.wait(timeout)

    def split(self, color: Any, key: Any = None) -> Any:
        self.raise_if_over()
        is_alone = not isinstance(color, (list, tuple))
        colors, keys = ([color], [key]) if is_alone else (color, key or [None])
        if len(colors) != 1 or len(keys) != 1:
            raise ValueError("split takes a list of 1 color, and of as many keys")
        made: list[Any] = []

        def does(sent: Any, got: Any, limit: Any) -> None:
            made.append(self._ranks.split(colors[0], 0 if keys[0] is None else keys[0]))

        self._push("split", None, None, does, 0).wait()
        ranks = made[0]
        found = None if ranks is None else MpiCommunicator(ranks, self.devices[0], self.timeout)
        return found if is_alone else [found]

    def launch(self, group: Group) -> None:
        # Sends never wait for another rank, so each goes before what may, unless that writes to it.
        order: list[int] = []
        for number in range(len(group.calls)):
            place = len(order)
            if number in group.sent:
                x = group.sent[number][1]
                while place and not _touch(x, group.received.get(order[place - 1])):
                    place -= 1
            order.insert(place, number)
        works = {number: group.calls[number]() for number in order}
        group.works = [works[number] for number in range(len(group.calls))]

    def _pair(self, x: Any, out: Any, *, is_needed: bool = False) -> tuple[Any, Any]:
        """The one array that is read, and the one that is written, if there is one."""
        self.raise_if_over()
        (x,) = listed(self, x, "x")
        if out is None and not is_needed:
            return x, None
        (out,) = listed(self, out, "out")
        checking.writable([out], "out")
        return x, out

    def _reduction(self, op: Any, x: Any) -> str:
        mpi_library.raise_unless_it_computes(x.dtype)
        _raise_if_long(x.size, "elements")
        return checked(op, x.dtype)

    def _mean(self, op: str, got: Any) -> None:
        if op == "mean":
            np.divide(got, self.size, out=got)

    def _other(self, other: Any, what: str, rank: Any) -> int:
        if rank is not None and checking.as_rank(self, rank, "rank") != self.rank:
            raise ValueError(f"rank={rank} is in another process: this one has rank {self.rank}")
        return checking.as_rank(self, other, what)

    def _launch(self, name: str, x: Any, out: Any, does: Does, priority: int) -> Any:
        if self._group is not None:
            number = len(self._group.calls)
            if name.startswith("send"):
                self._group.sent[number] = (0, 0), x
            elif out is not None:
                self._group.received[number] = (0, 0), out

        def call() -> Work:
            return self.noted(self._push(name, x, out, does, priority))

        return self.launched(call)

    def _push(self, name: str, x: Any, out: Any, does: Does, priority: int) -> Work:
        """Push the copies and the host op of one call."""
        current: Any = engine()
        is_recorded = isinstance(current, Recorder)
        with_pool(current.outside if is_recorded else current, self._pool, 1)
        number = -1 if is_recorded else next(self._pushed)
        near_x = _on_host(x)
        near_out = near_x if out is x or _are_same(x, out) else _on_host(out)
        if near_x is not x:
            copy(near_x, x, name=f"{name} (to the CPU)", priority=priority)
        limit = name, number, self.timeout

        def run() -> None:
            self._in_turn(number)
            try:
                _with_memory(near_x, near_out, does, limit)
            except BaseException as error:
                self.broken_by = f"{name}: {error}"
                raise

        if number >= 0:
            self._due.append(number)
        reads = [] if near_x is None else [near_x]
        writes = [self._token] if near_out is None else [near_out, self._token]
        current.push(run, reads=reads, writes=writes, name=name, priority=priority, pool=self._pool)
        if near_out is not None and out.device != CPU:
            copy(out, near_out, name=f"{name} (to the device)", priority=priority)
        return work_of(name, [self._token] if out is None else [out, self._token])

    def _in_turn(self, number: int) -> None:
        """CommunicatorBroken where an earlier call failed, or was poisoned and never ran: what
        other ranks called then waits for us, and must not meet a later call."""
        if number >= 0 and self._due.popleft() != number and self.broken_by is None:
            self.broken_by = "an earlier call did not run here, since what it reads had failed"
        if self.broken_by is not None:
            raise CommunicatorBroken(self.broken_by)


def _with_memory(x: Any, out: Any, does: Does, limit: tuple[str, int, float]) -> None:
    """Do it on contiguous memory: the arrays' own, where they are so and share no bytes."""
    if out is None:
        does(None if x is None else np.ascontiguousarray(view_of(x)).reshape(x.shape), None, limit)
        return
    target = view_of(out)
    is_own = target.flags.c_contiguous
    if x is out and is_own:
        does(target, target, limit)
        return
    source = None if x is None else view_of(x)
    if source is not None and (
        not source.flags.c_contiguous or np.may_share_memory(source, target)
    ):
        source = source.copy()
    got = target if is_own else np.empty(target.shape, target.dtype)
    does(source, got, limit)
    if got is not target:
        np.copyto(target, got)


def _on_host(x: Any) -> Any:
    """The array, or memory of its size on the CPU."""
    if x is None or x.device == CPU:
        return x
    return empty(x.shape, x.dtype, device="cpu")


def _are_same(x: Any, out: Any) -> bool:
    return x is not None and out is not None and checking.is_same(x, out)


def _touch(x: Any, received: Any) -> bool:
    """True where a send may not go before a call: it is a send itself, or writes to the bytes."""
    if received is None:
        return True
    region = received[1].region
    return bool(region[0] < x.region[1] and x.region[0] < region[1])


def _raise_if_long(length: int, what: str) -> None:
    if length > mpi_library.MOST:
        raise ValueError(f"MPI moves at most {mpi_library.MOST} {what} a call: take parts")


def _flush(ref: weakref.ref[MpiCommunicator]) -> None:
    """At exit: what was pushed runs, and what was sent is taken."""
    comm = ref()
    if comm is None or comm.broken_by is not None:
        return

    def does(sent: Any, got: Any, limit: Any) -> None:
        comm._ranks.flush(limit)

    with suppress(ClosedError):
        comm._push("flush", None, None, does, 0).wait()
