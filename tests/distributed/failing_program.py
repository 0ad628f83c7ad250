"""Ranks that die, sleep or cannot be reached, and ranks that end with sends in flight."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from contextlib import suppress

import numpy as np

import cudasync as cs
from cudasync.distributed.mpi_library import LET_GO

LENGTH = 1 << 18
PATIENCE_S = 40


def init(timeout=PATIENCE_S):
    return cs.distributed.init("mpi", devices=["cpu"], timeout=timeout)


def numbers(value=1.0, length=LENGTH):
    return cs.xp.asarray(np.full(length, value), device="cpu")


def killed():
    """The other ranks learn which rank died, and go on without it."""
    comm, x = init(), numbers()
    comm.all_reduce(x).wait()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = comm.all_reduce(x).exception().cause
    assert isinstance(error, cs.distributed.RankFailed), error
    assert error.ranks == (1,), error
    assert comm.is_broken
    cs.engine().clear_errors()
    rest = comm.shrink()
    assert (rest.size, rest.rank) == (comm.size - 1, max(0, comm.rank - 1))
    y = numbers(float(comm.rank))
    rest.all_reduce(y)
    assert y.numpy()[0] == sum(range(comm.size)) - 1
    print("goes on", flush=True)


def killed_without_tolerance():
    comm, x = init(), numbers()
    comm.all_reduce(x).wait()
    try:
        comm.shrink()
    except cs.distributed.BackendUnavailable:
        comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.all_reduce(x).wait()
    raise AssertionError("a collective without a rank came to an end")


def never_there():
    """A rank that does not call init, or has ended before: the other one hears of it in time."""
    if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
        if sys.argv[2] == "ends":
            return
        signal.pause()
    for _ in range(2):
        # MPI's start cannot be repeated: the second call raises, too.
        try:
            init(timeout=2)
        except cs.distributed.CollectiveTimeout:
            continue
        else:
            raise AssertionError("init has found a rank that is not there")
    print("told", flush=True)
    # The other rank would wait for this one.
    os._exit(3)


def lengths():
    """One rank's array is short, and the other one's long: both get an error, or a result."""
    for first, second in ((60_000, 70_000), (65_534, 65_536), (2, 200_000)):
        for call in ("all_reduce", "reduce", "reduce_scatter"):
            comm = init(timeout=1)
            n = second if comm.rank else first
            x = cs.xp.asarray(np.ones(n, np.float32), device="cpu")
            out = [x[: n // 2]] if call == "reduce_scatter" else []
            work = getattr(comm, call)(x, *out)
            failure = work.exception()
            assert failure is None or isinstance(failure.cause, Exception), failure
            cs.engine().clear_errors()
    print("told", flush=True)
    os._exit(0)


def sleeping():
    """A waiting rank gets an error. Its memory stays until MPI ends its use, maybe late."""
    other = init()
    for length in (LENGTH >> 8, LENGTH):
        one_sleeps(other, length)
    print("told", flush=True)


def one_sleeps(other, length):
    comm, x = init(timeout=0.5), numbers(length=length)
    comm.all_reduce(x).wait()
    other.barrier()
    if comm.rank == 0:
        memory = weakref.ref(x._allocation.bytes)
        work = comm.all_reduce(x)
        failure = work.exception()
        assert isinstance(failure.cause, cs.distributed.CollectiveTimeout), failure
        assert comm.is_broken
        with suppress(cs.distributed.CommunicatorBroken):
            comm.all_reduce(x)
            raise AssertionError("a broken communicator goes on")
        cs.engine().clear_errors()
        del x, work, comm, failure
        cs.waitall()
        gc.collect()
        assert memory() is not None
        assert len(LET_GO) == 1
        other.barrier()
        # The calls that move messages also move these messages.
        end = time.monotonic() + PATIENCE_S
        while LET_GO and time.monotonic() < end:
            other.send(numbers(length=1), 0)
            other.recv(numbers(length=1), 0).wait()
        assert not LET_GO
        gc.collect()
        assert memory() is None
    else:
        other.barrier()
        failure = comm.all_reduce(x).exception()
        if length == LENGTH:
            # Rank 0 took no part beyond its first messages.
            assert isinstance(failure.cause, cs.distributed.CollectiveTimeout), failure
            cs.engine().clear_errors()
        else:
            assert failure is None, failure
            assert x.numpy()[0] == 4
    other.barrier()


def apart():
    """The link between two machines goes down: both ranks get an error, and none hangs."""
    comm, x = init(timeout=3), numbers()
    comm.all_reduce(x).wait()
    print("together", flush=True)
    if comm.rank == 0:
        subprocess.run(["ip", "link", "set", sys.argv[2], "down"], check=True)
    comm.all_reduce(x).wait()
    raise AssertionError("nothing was told")


def ending():
    """Sent messages arrive, although the sending program has ended."""
    comm = init()
    if comm.rank == 0:
        for value in range(4):
            x = numbers(float(value))
            comm.send(x, 1)
            x += 100
        return
    for value in range(4):
        got = numbers()
        comm.recv(got, 0)
        assert got.numpy().tolist() == [value] * LENGTH
    print("all came", flush=True)


# A hanging program prints its stacks.
faulthandler.dump_traceback_later(2 * PATIENCE_S, exit=True)
globals()[sys.argv[1]]()
