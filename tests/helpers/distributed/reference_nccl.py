"""nccl4py's low-level calls for the ranks of one process, on the software GPU.

The names and the order of arguments are nccl4py's. A call enqueues on its streams: copies to pinned
memory, NumPy on the host, copies back. Several ranks must group their calls, as NCCL demands of one
thread. `states` holds the answers to queries; `latch` holds each call's first stream until an
abort.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from contextlib import contextmanager

import numpy as np
from cuda.bindings import driver

import cudasync as cs
from cudasync.testing import Latch

KINDS = {0: np.int8, 1: np.uint8, 2: np.int32, 3: np.uint32, 4: np.int64, 5: np.uint64,
         6: np.float16, 7: np.float32, 8: np.float64}  # fmt: skip
OPS = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum, 4: np.add}
MEAN = 4
NATIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Config:
    """The part of ncclConfig_t that is used."""

    def __init__(self):
        self.blocking = 1
        self.ptr = id(self)


class _Group(threading.local):
    """The calls of one thread's group. Other threads have their own groups."""

    def __init__(self):
        self.is_open = False
        # Collectives by rank; sends and recvs by sender and receiver.
        self.clear()
        # The communicator of these calls.
        self.number = 0

    def clear(self):
        self.collectives, self.sent, self.received = {}, {}, {}


class ReferenceNccl:
    """The module, for a communicator of `size` ranks. `told` lists the calls in order; collectives
    appear once, for rank 0."""

    Config = Config

    def __init__(self, size=1):
        self.size = size
        self.told = []
        self.states = []
        self.latch = None
        self.group = _Group()
        self.kept = []
        # The device of each rank of each communicator.
        self.devices = {}

    def get_version(self):
        return 23203

    def get_unique_id(self):
        return bytes(range(128))

    def comm_init_rank_scalable(self, size, rank, ids, identity, config):
        assert (size, ids, bytes(identity)) == (self.size, 1, bytes(range(128)))
        assert config
        assert self.group.is_open == (size > 1), "several ranks of a process are made in a group"
        number = len(self.devices) // size
        self.devices[number, rank] = cs.Device(int(checked(driver.cuCtxGetDevice())[1]))
        self.told.append("init")
        return f"handle {rank} {number}"

    def comm_get_async_error(self, comm):
        self._rank(comm)
        return self.states.pop(0) if self.states else 0

    def comm_abort(self, comm):
        self._rank(comm)
        self.told.append("abort")
        self.group.clear()
        if self.latch is not None:
            self.latch.release()

    def comm_finalize(self, comm):
        self._rank(comm)
        assert self.group.is_open == (self.size > 1)
        self.told.append("finalize")

    def comm_destroy(self, comm):
        self._rank(comm)
        self.told.append("destroy")

    def get_error_string(self, state):
        return f"state {state}"

    def get_last_error(self, comm):
        return "no more is known"

    def group_start(self):
        assert not self.group.is_open
        self.told.append("group_start")
        self.group.is_open = True

    def group_end(self):
        assert self.group.is_open
        self.told.append("group_end")
        self.group.is_open = False
        self._end()

    def all_reduce(self, sent, got, count, kind, op, comm, stream):
        self._collective("all_reduce", sent, got, count, count, kind, comm, stream, op=op)

    def all_gather(self, sent, got, count, kind, comm, stream):
        self._collective("all_gather", sent, got, count, count * self.size, kind, comm, stream)

    def reduce_scatter(self, sent, got, count, kind, op, comm, stream):
        whole = count * self.size
        self._collective("reduce_scatter", sent, got, whole, count, kind, comm, stream, op=op)

    def broadcast(self, sent, got, count, kind, root, comm, stream):
        self._collective("broadcast", sent, got, count, count, kind, comm, stream, root=root)

    def reduce(self, sent, got, count, kind, op, root, comm, stream):
        self._collective("reduce", sent, got, count, count, kind, comm, stream, op=op, root=root)

    def gather(self, sent, got, count, kind, root, comm, stream):
        whole = count * self.size
        self._collective("gather", sent, got, count, whole, kind, comm, stream, root=root)

    def scatter(self, sent, got, count, kind, root, comm, stream):
        whole = count * self.size
        self._collective("scatter", sent, got, whole, count, kind, comm, stream, root=root)

    def allto_all(self, sent, got, count, kind, comm, stream):
        assert sent != got, "not in place"
        whole = count * self.size
        self._collective("allto_all", sent, got, whole, whole, kind, comm, stream)

    def send(self, sent, count, kind, peer, comm, stream):
        assert self.group.is_open, "a send alone waits for its recv for ever"
        entry = sent, np.dtype(KINDS[kind]).itemsize * count, stream
        self.group.sent.setdefault((self._rank(comm), peer), []).append(entry)

    def recv(self, got, count, kind, peer, comm, stream):
        assert self.group.is_open, "a recv alone waits for its send for ever"
        entry = got, np.dtype(KINDS[kind]).itemsize * count, stream
        self.group.received.setdefault((peer, self._rank(comm)), []).append(entry)

    def _rank(self, comm):
        rank, self.group.number = map(int, comm.removeprefix("handle ").split())
        assert 0 <= rank < self.size
        return rank

    def _collective(self, name, sent, got, given, made, kind, comm, stream, *, op=None, root=None):
        rank = self._rank(comm)
        assert op in (None, *OPS)
        self._raise_unless_there(rank, stream)
        what = name, given, made, kind, op, root
        self.group.collectives.setdefault(rank, []).append((what, sent, got, stream))
        if rank == 0:
            self.told.append(name)
        if self.latch is not None:
            self.latch.hold(cs.Stream.from_handle(stream))
        if not self.group.is_open:
            assert self.size == 1, "one thread has to group what several ranks call"
            self._end()

    def _device(self, rank):
        return self.devices[self.group.number, rank]

    def _raise_unless_there(self, rank, stream):
        assert cs.Stream.from_handle(stream).device == self.devices[self.group.number, rank], (
            "another device's stream"
        )

    def _end(self):
        """Run the group: the collectives of all ranks in order, then sends with their recvs."""
        assert len({len(each) for each in self.group.collectives.values()}) < 2
        assert len(self.group.collectives) in (0, self.size), "a rank is missing"
        for row in zip(
            *(calls for _, calls in sorted(self.group.collectives.items())), strict=True
        ):
            assert len({what for what, *_ in row}) == 1, "ranks call different things"
            self._compute(row)
        assert self.group.sent.keys() == self.group.received.keys()
        for way, sends in self.group.sent.items():
            for (sent, size, first), (got, as_many, last) in zip(
                sends, self.group.received[way], strict=True
            ):
                assert size == as_many
                self.told.append("send and recv")
                box = self._pinned(way[0], size, np.dtype(np.uint8), 1)
                self._fetch(way[0], box, sent, first)
                self._joined([first, last])
                self._store(way[1], got, box, last)
        self.group.clear()

    def _compute(self, row):
        name, given, made, kind, op, root = row[0][0]
        dtype, streams = np.dtype(KINDS[kind]), [stream for *_, stream in row]
        first = cs.Stream.from_handle(streams[0])
        ins = [self._pinned(rank, given, dtype, sent) for rank, (_, sent, _, _) in enumerate(row)]
        outs = [self._pinned(rank, made, dtype, got) for rank, (_, _, got, _) in enumerate(row)]
        for rank, (into, (_, sent, _, stream)) in enumerate(zip(ins, row, strict=True)):
            if sent:
                self._fetch(rank, into, sent, stream)
        self._joined(streams)
        # Python runs on the driver's thread. A GPU's driver may not allow this, but this driver is
        # Python.
        compute = NATIVE(lambda _: result(name, self.size, ins, outs, op, root))
        self.kept.append(compute)
        first.launch_host(ctypes.cast(compute, ctypes.c_void_p).value)
        self._joined(streams)
        for rank, (out, (_, _, got, stream)) in enumerate(zip(outs, row, strict=True)):
            if got and (root in (None, rank) or name in TO_ALL):
                self._store(rank, got, out, stream)

    def _fetch(self, rank, into, sent, stream):
        if into.nbytes:
            on = driver.CUstream(stream)
            with self._current(rank):
                checked(driver.cuMemcpyDtoHAsync(into.ctypes.data, sent, into.nbytes, on))

    def _store(self, rank, got, out, stream):
        if out.nbytes:
            on = driver.CUstream(stream)
            with self._current(rank):
                checked(driver.cuMemcpyHtoDAsync(got, out.ctypes.data, out.nbytes, on))

    @contextmanager
    def _current(self, rank):
        """Make the rank's context current, and restore the previous one, as NCCL does."""
        before = checked(driver.cuCtxGetCurrent())[1]
        self._device(rank).context.enter_anew()
        yield
        checked(driver.cuCtxSetCurrent(before))

    def _pinned(self, rank, count, dtype, address):
        """A host buffer for the memory at that address; None for a null address."""
        if not address:
            return None
        buffer = cs.PinnedBuffer(
            max(1, count * dtype.itemsize), self.devices[self.group.number, rank]
        )
        self.kept.append(buffer)
        return buffer.view((count,), dtype)

    def _joined(self, streams):
        """Make each stream wait until all streams have come this far."""
        first, *others = [cs.Stream.from_handle(each) for each in dict.fromkeys(streams)]
        for each in others:
            first.wait(each.record())
        for each in others:
            each.wait(first.record())


TO_ALL = ("broadcast", "scatter")


def checked(answer):
    assert answer[0] == 0, answer
    return answer


def result(name, size, ins, outs, op, root):
    """Write the collective's result into the ranks' arrays."""
    if op is not None:
        total = functools.reduce(OPS[op], [each.copy() for each in ins])
        if op == MEAN:
            total = total / size
    for rank, out in enumerate(outs):
        if out is None:
            continue
        if name in ("all_reduce", "reduce"):
            out[:] = total
        elif name == "reduce_scatter":
            out[:] = total.reshape(size, -1)[rank]
        elif name == "broadcast":
            out[:] = ins[root]
        elif name in ("all_gather", "gather"):
            out[:] = np.concatenate(ins)
        elif name == "scatter":
            out[:] = ins[root].reshape(size, -1)[rank]
        else:
            out[:] = np.concatenate([each.reshape(size, -1)[rank] for each in ins])


def held(size=1):
    """A module with calls that hold their stream until the communicator is aborted."""
    made = ReferenceNccl(size)
    made.latch = Latch()
    return made
