"""The program of each rank of test_mpi.py: every call, on the CPU and a device, against NumPy."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

import cudasync as cs
from cudasync.distributed import mpi, pairwise_exchange, parts
from cudasync.testing import HostLatch

PATIENCE_S = 40
# An array that is little longer than one chunk still has several chunks.
pairwise_exchange._MOST_BYTES = 1 << 14
MOST = mpi.STAGED_BYTES, mpi.MOST_BYTES
DTYPES = (np.float32, np.int64, np.uint8)
REDUCE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def numbers(comm, dtype, length):
    """The numbers of each rank, which all ranks know."""
    return [(np.arange(length) * (r + 3) % 5 + 1).astype(dtype) for r in range(comm.size)]


def same(found, wanted, what):
    np.testing.assert_array_equal(found.numpy(), wanted, err_msg=what, strict=True)


def reductions(comm, dtype, make):
    host = numbers(comm, dtype, 6 * comm.size)
    for op, function in REDUCE.items():
        wanted = function.reduce(host, axis=0).astype(dtype)
        x, out = make(host[comm.rank]), make(np.zeros_like(wanted))
        comm.all_reduce(x, out, op=op)
        same(out, wanted, f"all_reduce {op}")
        same(x, host[comm.rank], "x stays")
        part = make(np.zeros(6, dtype))
        comm.reduce_scatter([x], [part], op=op)
        same(part, wanted[6 * comm.rank : 6 * comm.rank + 6], f"reduce_scatter {op}")
        comm.reduce(x, op=op, root=comm.size - 1)
        same(x, wanted if comm.rank == comm.size - 1 else host[comm.rank], f"reduce {op}")
        x = make(host[comm.rank])
        comm.all_reduce([x[::2]], op=op)
        same(x[::2], wanted[::2], f"all_reduce {op} in place, with gaps")
        same(x[1::2], host[comm.rank][1::2], "what lies between stays")
    if dtype is np.float32:
        x = make(host[comm.rank])
        comm.all_reduce(x, op="mean")
        same(x, np.add.reduce(host, axis=0) / dtype(comm.size), "mean")


def moves(comm, dtype, make, length=100_000):
    size, rank = comm.size, comm.rank
    host = numbers(comm, dtype, 3 * size)
    out = make(np.zeros(3 * size * size, dtype))
    comm.all_gather(make(host[rank]), out)
    same(out, np.concatenate(host), "all_gather")
    scalars = make(np.zeros(size, dtype))
    comm.all_gather(make(host[rank][0]), scalars)
    same(scalars, np.array([each[0] for each in host]), "all_gather of scalars")
    x = make(host[rank])
    comm.broadcast(x, root=1)
    same(x, host[1], "broadcast")
    gathered = make(np.zeros(3 * size * size, dtype)) if rank == 1 else None
    comm.gather(make(host[rank]), gathered, root=1)
    if rank == 1:
        same(gathered, np.concatenate(host), "gather")
    part = make(np.zeros(3, dtype))
    comm.scatter(make(host[0]) if rank == 0 else None, part)
    same(part, host[0][3 * rank : 3 * rank + 3], "scatter")
    x = make(host[rank])
    comm.all_to_all(x)
    same(x, np.concatenate([each[3 * rank : 3 * rank + 3] for each in host]), "all_to_all")
    # Both ranks send before they receive, and more than MPI buffers.
    long = make(np.full(length, rank, dtype))
    got = make(np.zeros(length, dtype))
    comm.send(long, (rank + 1) % size)
    long += 1  # The message has the values of the time of the push.
    long.wait()
    comm.recv(got, (rank - 1) % size)
    same(got, np.full(length, (rank - 1) % size, dtype), "send and recv")
    long -= 1
    with comm.group() as calls:
        comm.recv(got, (rank + 1) % size)
        comm.send(long, (rank - 1) % size)
    same(got, np.full(length, (rank + 1) % size, dtype), "recv before send, in a group")
    assert len(calls.works) == 2


def order(comm, make):
    """Collectives among other ops, in program order, and recorded."""
    x = make(np.arange(8, dtype=np.float32))
    for _ in range(3):
        x += 1
        comm.all_reduce(x)
    wanted = np.arange(8, dtype=np.float32)
    for _ in range(3):
        wanted = (wanted + 1) * comm.size
    same(x, wanted, "a chain")
    with cs.graph() as recorded:
        x += 1
        comm.all_reduce(x)
    program = recorded.instantiate()
    for _ in range(3):
        program.launch()
        wanted = (wanted + 1) * comm.size
    same(x, wanted, "a chain of launches")


def bits(comm, make):
    """The results have the same bits on all ranks, and in a second run."""
    x = np.random.default_rng(comm.rank).standard_normal(5000).astype(np.float32)
    results = []
    for _ in range(2):
        out = make(np.zeros_like(x))
        comm.all_reduce(make(x), out)
        results.append(out.numpy())
        rows = make(np.zeros(x.size * comm.size, np.float32))
        comm.all_gather(out, rows)
        for row in rows.numpy().reshape(comm.size, -1):
            np.testing.assert_array_equal(row.view(np.int32), results[0].view(np.int32))


def long_reductions(comm, make):
    """The sums are added in the order of the ranks, to the bit. The last chunk is shorter."""
    length = 70_008
    for dtype, op in (
        (np.float32, "sum"),
        (np.float64, "mean"),
        (np.float32, "prod"),
        (np.int64, "sum"),
        (np.int32, "min"),
    ):
        rows = [
            (np.random.default_rng(r).standard_normal(length) * 100).astype(dtype)
            for r in range(comm.size)
        ]
        wanted = rows[0].copy()
        for row in rows[1:]:
            wanted = {"prod": np.multiply, "min": np.minimum}.get(op, np.add)(wanted, row)
        if op == "mean":
            wanted /= comm.size
        own, part = rows[comm.rank], length // comm.size
        x, out = make(own), make(np.zeros_like(own))
        comm.all_reduce(x, out, op=op)
        same(out, wanted, f"long {op}")
        same(x, own, f"long {op}, its input")
        scattered = make(np.zeros(part, dtype))
        comm.reduce_scatter(x, scattered, op=op)
        same(scattered, wanted[comm.rank * part : (comm.rank + 1) * part], f"scattered {op}")
        for root in range(comm.size):
            y = make(own)
            comm.reduce(y, op=op, root=root)
            same(y, wanted if root == comm.rank else own, f"long {op} on {root}")
        comm.all_reduce(x, op=op)
        same(x, wanted, f"long {op} in place")
    truth = np.arange(1 << 19) % (comm.rank + 2) > 0
    x = make(truth)
    comm.all_reduce(x, op="min")
    rows = [np.arange(1 << 19) % (r + 2) > 0 for r in range(comm.size)]
    same(x, np.logical_and.reduce(rows), "long truths")


def misuse(comm, make):
    x = make(np.zeros(5, np.float16))
    for call, kind in (
        (lambda: comm.all_reduce(x), TypeError),
        (lambda: comm.all_reduce([x, x]), ValueError),
        (lambda: comm.all_reduce(np.zeros(3)), TypeError),
        # A call that the engine refuses must not be expected from other ranks either.
        (lambda: comm.broadcast(x, priority="high"), TypeError),
        (lambda: comm.all_to_all(x[: comm.size + 1]), ValueError),
        (lambda: comm.broadcast(x, root=comm.size), ValueError),
        (lambda: comm.recv(x, 0, rank=(comm.rank + 1) % comm.size), ValueError),
    ):
        try:
            call()
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")
    comm.broadcast(x)
    comm.barrier()


def splits(comm, make):
    part = comm.split(comm.rank % 2, -comm.rank)
    members = [r for r in range(comm.size) if r % 2 == comm.rank % 2][::-1]
    assert (part.size, part.rank) == (len(members), members.index(comm.rank))
    x = make(np.array([comm.rank]))
    part.all_reduce(x)
    same(x, np.array([sum(members)]), "a part")
    alone = comm.split("some" if comm.rank == 0 else None)
    assert (alone is None) == (comm.rank != 0)


def skipped(comm, make):
    """A call whose input failed does not run, and no later call runs in its place."""

    def fail():
        raise ValueError("planted")

    x, y = make(np.zeros(4)), make(np.zeros(4))
    x.wait(), y.wait()
    if comm.rank == 0:
        cs.engine().push(fail, writes=[x])
        comm.all_reduce(x)
        last = comm.all_reduce(y)
        assert isinstance(last.exception().cause, cs.distributed.CommunicatorBroken)
        assert comm.is_broken
        cs.engine().clear_errors()
        return
    failure = comm.all_reduce(x).exception()
    assert isinstance(failure.cause, cs.distributed.CollectiveTimeout), failure
    try:
        comm.all_reduce(y)
    except cs.distributed.CommunicatorBroken:
        cs.engine().clear_errors()
    else:
        raise AssertionError("the communicator goes on")


def listened_to():
    """The ports on which this process listens."""
    own = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]


def in_parts(comm, make):
    """Transport in small parts equals transport as a whole, on the CPU, a device, and both."""
    mpi.STAGED_BYTES = mpi.MOST_BYTES = 64
    for dtype in DTYPES:
        reductions(comm, dtype, make)
        moves(comm, dtype, make, 100)
    order(comm, make)
    for rows in (make(np.zeros((3 * comm.size, 5), np.int32)), make(np.zeros(200, np.int32))[::2]):
        rows += comm.rank + 1
        comm.all_reduce(rows)
        same(rows, np.full(rows.shape, sum(range(comm.size + 1)), np.int32), "rows, or gaps")
    length = 50
    whole = make(np.arange(length * comm.size) * (comm.rank + 1))
    own = whole[length * comm.rank : length * (comm.rank + 1)]
    comm.reduce_scatter(whole, own)
    comm.all_gather(own, whole)
    wanted = np.arange(length * comm.size) * sum(range(comm.size + 1))
    same(whole, wanted, "one's own part, in place")
    shifted = make(np.arange(101.0))
    comm.all_reduce(shifted[:100], shifted[1:])
    same(shifted[1:], np.arange(100.0) * comm.size, "out a step beside x")
    # Arrays of different sizes: the first parts fit, and the error is still found.
    comm.barrier()
    x = make(np.zeros(40 if comm.rank else 24, np.float64))
    work = comm.send(x, 1 - comm.rank) if comm.rank else comm.recv(x, 1)
    if comm.rank == 0:
        assert "arrays of equal size" in str(work.exception()), work.exception()
        cs.engine().clear_errors()
    work.exception()
    mpi.STAGED_BYTES, mpi.MOST_BYTES = MOST


def overlap(comm, make):
    """While one part is transported, the next is copied to the host, and the last one back."""
    mpi.STAGED_BYTES = 64
    latches, copies = [HostLatch() for _ in range(4)], []
    copy, all_reduce, held = parts.copy, comm._ranks.all_reduce, iter(latches)

    def copied(*arguments, **more):
        copies.append(copy(*arguments, **more))

    def hold(*arguments):
        next(held).wait()
        return all_reduce(*arguments)

    parts.copy, comm._ranks.all_reduce = copied, hold
    x = make(np.arange(64, dtype=np.float32))
    work = comm.all_reduce(x)
    parts.copy = copy
    assert len(copies) == 8, "to the host and back, for each of four parts"
    copies[2].wait(PATIENCE_S)
    latches[0].release()
    copies[1].wait(PATIENCE_S)
    assert not work.done()
    for each in latches[1:]:
        each.release()
    same(x, np.arange(64, dtype=np.float32) * comm.size, "four parts")
    mpi.STAGED_BYTES = MOST[0]


def main():
    comm = cs.distributed.init()
    assert comm.backend == "mpi"
    assert bool(listened_to()) == ("--listens" in sys.argv), listened_to()
    if "--listens" in sys.argv:
        return
    for device in ("cpu", 0):
        comm = cs.distributed.init("mpi", devices=[device])

        def make(host, device=device):
            return cs.array(host, device=cs.Device(0)) if device == 0 else on_cpu(host)

        for dtype in DTYPES:
            reductions(comm, dtype, make)
            moves(comm, dtype, make)
        order(comm, make)
        bits(comm, make)
        long_reductions(comm, make)
        misuse(comm, make)
        splits(comm, make)
        comm.barrier()
        if "--parts" in sys.argv:
            in_parts(cs.distributed.init("mpi", devices=[device]), make)
    if "--parts" in sys.argv:
        overlap(cs.distributed.init("mpi", devices=[0]), make)
        # Some ranks have their arrays on the CPU, others on a device.
        device = "cpu" if comm.rank == 0 else 0
        in_parts(cs.distributed.init("mpi", devices=[device]), make if comm.rank else on_cpu)
    with cs.Engine(workers=1):
        order(comm, make)
    if "--skipped" in sys.argv:
        skipped(cs.distributed.init("mpi", devices=["cpu"], timeout=0.5), on_cpu)
    print("ok", comm.rank, "of", comm.size, flush=True)


def on_cpu(host):
    return cs.xp.asarray(host, device="cpu")


main()
