"""Floor 5. The communicator between processes, by MPI: one rank in each.

A collective is host ops on the communicator's worker, one for each part, ordered behind earlier
ops by a token. Arrays on the CPU are read and written in place. Arrays of a device go through
pinned memory, part by part.
"""

from __future__ import annotations

import atexit
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.array import copy
from cudasync.array.host.memory import CPU
from cudasync.distributed import argument_checks, mpi_library
from cudasync.distributed.argument_checks import (
    alike,
    joined,
    length_of_part,
    listed,
    one_color,
    one_pair,
)
from cudasync.distributed.call_comparison import Comparing, Told, told_of
from cudasync.distributed.call_queue import Line
from cudasync.distributed.communicator import Communicator, Group
from cudasync.distributed.parts import (
    MOST_BYTES,
    STAGED_BYTES,
    Rows,
    Slots,
    columns,
    is_apart,
    written,
)
from cudasync.distributed.reductions import checked
from cudasync.distributed.work import Work, work_of
from cudasync.engine import engine
from cudasync.errors import ClosedError, CudasyncError
from cudasync.graph.node import Node
from cudasync.graph.recorder import Recorder

if TYPE_CHECKING:
    from cudasync.distributed.call_queue import Does
    from cudasync.distributed.ranks import Ranks
    from cudasync.distributed.resumable_calls import Steps


class MpiCommunicator(Communicator):
    """The processes that mpiexec started. Each gives one array a call, alone or in a list."""

    backend = "mpi"

    # What debug mode compares beside each call.
    remark = ""

    def __init__(
        self,
        ranks: Ranks,
        device: Any,
        timeout: float,
        *,
        debug: bool,
        lane_of: MpiCommunicator | None = None,
    ) -> None:
        super().__init__(ranks.size, (ranks.rank,), (device,))
        self.timeout = timeout
        self._ranks = ranks
        self._lanes: list[MpiCommunicator] = []
        self._is_staged: bool
        self._slots: Slots
        self._line: Line
        if lane_of is not None:
            self._is_staged, self.debug, self._slots = lane_of._is_staged, debug, lane_of._slots
            self._line = Line(ranks, timeout, None, lane_of._line)
            return
        # All ranks agree on parts and debug mode, because their messages must match.
        self._is_staged, self.debug = ranks.any([device != CPU, debug], ("init", 0, timeout))
        ranks.open_exchange()
        self._slots = Slots(device)
        self._line = Line(ranks, timeout, Comparing(ranks.duplicate()) if self.debug else None)
        # At exit, sends may still be under way.
        atexit.register(_flush, weakref.ref(self))

    def lanes(self, count: int) -> list[MpiCommunicator]:
        """Communicators of the same ranks whose calls match by lane, in any order of the lanes.

        All ranks call it; it blocks. They use this communicator's worker, and break with it. Arrays
        of a device go through memory that all lanes would share, so there each lane is this
        communicator itself, and calls match by their order.
        """
        self.raise_if_over()
        if self._is_staged:
            return [self] * count
        made: list[Ranks] = []

        def does(sent: Any, got: Any, left: int) -> Steps:
            made.extend((yield from self._ranks.lanes(count * (1 + self.debug))))

        self._push(Told("lanes"), None, None, does, 0).wait()
        found = [
            MpiCommunicator(each, self.devices[0], self.timeout, debug=self.debug, lane_of=self)
            for each in made[:count]
        ]
        for lane, each in zip(found, made[count:], strict=False):
            lane._line.comparing = Comparing(each)
        self._lanes += found
        return found

    @property
    def broken_by(self) -> str | None:
        """The first failure between ranks."""
        return self._line.broken_by

    def raise_unless_it_computes(self, dtype: Any) -> None:
        mpi_library.raise_unless_it_computes(dtype)

    def all_reduce(self, x: Any, out: Any = None, *, op: str = "sum", priority: int = 0) -> Any:
        x, out = one_pair(self, x, x if out is None else out)
        op = self._reduction(op, x)
        alike([out], x.shape, x.dtype, "out")

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.all_reduce(sent, got, op)

        return self._launch(told_of(f"all_reduce {op}", x), x, out, does, priority)

    def all_gather(self, x: Any, out: Any, *, priority: int = 0) -> Any:
        x, out = one_pair(self, x, out)
        alike([out], joined(x.shape, self.size), x.dtype, "out")

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.all_gather(sent, got)

        return self._launch(told_of("all_gather", x), x, out, does, priority, rows=(1, self.size))

    def reduce_scatter(self, x: Any, out: Any, *, op: str = "sum", priority: int = 0) -> Any:
        x, out = one_pair(self, x, out)
        op = self._reduction(op, x)
        length = length_of_part(x.shape, self.size, "x")
        alike([out], (length, *x.shape[1:]), x.dtype, "out")

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.reduce_scatter(sent, got, op)

        told = told_of(f"reduce_scatter {op}", x)
        return self._launch(told, x, out, does, priority, rows=(self.size, 1))

    def broadcast(self, x: Any, root: int = 0, *, priority: int = 0) -> Any:
        root = argument_checks.as_rank(self, root, "root")
        x, _ = one_pair(self, x, x if root != self.rank else None)

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.broadcast(sent if got is None else got, root)

        told = told_of("broadcast", x, root=root)
        if root == self.rank:
            return self._launch(told, x, None, does, priority)
        return self._launch(told, None, x, does, priority)

    def reduce(
        self, x: Any, out: Any = None, *, op: str = "sum", root: int = 0, priority: int = 0
    ) -> Any:
        root = argument_checks.as_rank(self, root, "root")
        x, out = one_pair(self, x, (x if out is None else out) if root == self.rank else None)
        op = self._reduction(op, x)
        if out is not None:
            alike([out], x.shape, x.dtype, "out")

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.reduce(sent, got, op, root)

        return self._launch(told_of(f"reduce {op}", x, root=root), x, out, does, priority)

    def gather(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        root = argument_checks.as_rank(self, root, "root")
        x, out = one_pair(self, x, out if root == self.rank else None, is_needed=root == self.rank)
        if out is not None:
            alike([out], joined(x.shape, self.size), x.dtype, "out")

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.gather(sent, got, root)

        told = told_of("gather", x, root=root)
        return self._launch(told, x, out, does, priority, rows=(1, self.size))

    def scatter(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        self.raise_if_over()
        root = argument_checks.as_rank(self, root, "root")
        only = () if root != self.rank else (root,)
        (x,), (out,) = listed(self, x, "x", only), listed(self, out, "out")
        argument_checks.writable([out], "out")
        if root == self.rank:
            length = length_of_part(x.shape, self.size, "x")
            alike([out], (length, *x.shape[1:]), x.dtype, "out")

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.scatter(sent, got, root)

        told = told_of("scatter", out, root=root)
        return self._launch(told, x if only else None, out, does, priority, rows=(self.size, 1))

    def all_to_all(self, x: Any, out: Any = None, *, priority: int = 0) -> Any:
        x, out = one_pair(self, x, x if out is None else out)
        alike([out], x.shape, x.dtype, "out")
        length_of_part(x.shape, self.size, "x")

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.all_to_all(sent.copy() if sent is got else sent, got)

        told, rows = told_of("all_to_all", x), (self.size, self.size)
        return self._launch(told, x, out, does, priority, rows=rows)

    def send(self, x: Any, to: int, *, rank: int | None = None, priority: int = 0) -> Any:
        _, to, x = argument_checks.end(self, x, rank, to, what="to", role="x")

        def does(sent: Any, got: Any, left: int) -> Steps:
            self._ranks.send(sent.copy(), to, left)
            # A send waits for nothing.
            yield from ()

        return self._launch(told_of(f"send to {to}", x, to=to), x, None, does, priority)

    def recv(self, out: Any, source: int, *, rank: int | None = None, priority: int = 0) -> Any:
        _, source, out = argument_checks.end(self, out, rank, source, what="source", role="out")
        argument_checks.writable([out], "out")

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.receive(got, source, left)

        told = told_of(f"recv from {source}", out, source=source)
        return self._launch(told, None, out, does, priority)

    def barrier(self, timeout: float | None = None) -> None:
        self.wait_for_launched(timeout)

        def does(sent: Any, got: Any, left: int) -> Steps:
            return self._ranks.barrier()

        work = self._push(Told("barrier"), None, None, does, 0)
        if isinstance(engine(), Recorder):
            return
        work.wait(timeout)

    def split(self, color: Any, key: Any = None) -> Any:
        self.raise_if_over()
        color, key, is_listed = one_color(color, key)
        made: list[Any] = []

        def does(sent: Any, got: Any, left: int) -> Steps:
            made.append((yield from self._ranks.split(color, key)))

        self._push(Told("split"), None, None, does, 0).wait()
        found = None
        if made[0] is not None:
            device, timeout = self.devices[0], self.timeout
            found = MpiCommunicator(made[0], device, timeout, debug=self.debug)
        return [found] if is_listed else found

    def shrink(self) -> MpiCommunicator:
        """A communicator of the ranks that are alive, in their order, once a rank has failed.

        All living ranks call it; it blocks until they do. Calls launched before raise RankFailed,
        or have raised it. CollectiveTimeout after `timeout`; BackendUnavailable if MPI runs without
        User Level Failure Mitigation (`cudasync launch --fault-tolerant`).
        """
        ranks = self._ranks.shrink(("shrink", 0, self.timeout))
        return MpiCommunicator(ranks, self.devices[0], self.timeout, debug=self.debug)

    def launch(self, group: Group) -> None:
        # Sends never wait for another rank. So each send moves before calls that may wait, unless
        # such a call writes the bytes that it sends.
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

    def _reduction(self, op: Any, x: Any) -> str:
        self.raise_unless_it_computes(x.dtype)
        return checked(op, x.dtype)

    def _launch(
        self,
        told: Told,
        x: Any,
        out: Any,
        does: Does,
        priority: int,
        *,
        rows: tuple[int, int] = (1, 1),
    ) -> Any:
        if self._group is not None:
            number = len(self._group.calls)
            if told.to is not None:
                self._group.sent[number] = (0, 0), x
            elif out is not None:
                self._group.received[number] = (0, 0), out

        def call() -> Work:
            return self.noted(self._push(told, x, out, does, priority, rows))

        return self.launched(call)

    def _push(
        self,
        told: Told,
        x: Any,
        out: Any,
        does: Does,
        priority: int,
        rows: tuple[int, int] = (1, 1),
    ) -> Work:
        """Push the copies and host ops of one call."""
        if self.remark:
            told = told._replace(call=told.call + self.remark)
        parts = [(0, 0)]
        given, of = (x, rows[0]) if x is not None else (out, rows[1])
        most = STAGED_BYTES if self._is_staged else MOST_BYTES
        if given is not None and given.nbytes // of * max(rows) > most:
            parts = columns(max(rows), given.size // of, given.dtype.itemsize, most)
        elif given is not None:
            parts = [(0, given.size // of)]
        if len(parts) == 1 and self.devices[0] == CPU:
            near_out = (
                x if out is not None and x is not None and argument_checks.is_same(x, out) else out
            )
            op: Any = self._line.push(told, x, near_out, does, priority, 0)
            # This op is the whole call, unless it is a node of a graph.
            return Work(told.call, None if isinstance(op, Node) else op)
        self._push_parts(told, x, out, does, priority, rows, parts)
        token = self._line.token
        return work_of(told.call, [token] if out is None else [out, token])

    def _push_parts(
        self,
        told: Told,
        x: Any,
        out: Any,
        does: Does,
        priority: int,
        rows: tuple[int, int],
        parts: list[tuple[int, int]],
    ) -> None:
        """Push for each part its copy to the host, its host op, and its copy back: they overlap."""
        name, length = told.call, parts[-1][1]
        if not is_apart(x, out, self.rank, self.size):
            x = x.copy()
        into, made = written(out, rows[1], length)
        is_in_place = x is not None and out is not None and argument_checks.is_same(x, out)
        out_of = into if is_in_place and made is None else Rows(x, rows[0], length)
        for number, part in enumerate(parts):
            near_x = out_of.on_host(part, self._slots)
            near_out = near_x if out_of is into else into.on_host(part, self._slots)
            out_of.fetch(near_x, part, name, priority)
            left = len(parts) - 1 - number
            self._line.push(told, near_x, near_out, does, priority, left, is_first=not number)
            into.store(near_out, part, name, priority)
        if made is not None:
            copy(out, made, name=name, priority=priority)


def _touch(x: Any, received: Any) -> bool:
    """True if a send must not move before a call: the call is a send or writes to the bytes."""
    if received is None:
        return True
    region = received[1].region
    return bool(region[0] < x.region[1] and x.region[0] < region[1])


def _flush(ref: weakref.ref[MpiCommunicator]) -> None:
    """At exit: run all pushed calls, and wait until MPI has taken all sent bytes."""
    comm = ref()
    if comm is None or comm.broken_by is not None:
        return

    def does(sent: Any, got: Any, left: int) -> Steps:
        yield from comm._ranks.flush()

    for lane in comm._lanes:
        # A failure is the op's, which the engine tells of.
        with suppress(CudasyncError):
            lane._line.token.wait()
    with suppress(ClosedError):
        comm._push(Told(), None, None, does, 0).wait()
