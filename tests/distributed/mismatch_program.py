"""Ranks whose calls differ in debug mode: each rank's error lists all calls, and no rank waits."""

from __future__ import annotations

import re

import numpy as np

import cudasync as cs

# By kind: the call of rank 0, and the call of the others. The arrays have four numbers, or as many
# as the call needs.
PAIRS = {
    "verb": (lambda c, x: c.all_reduce(x), lambda c, x: c.broadcast(x)),
    "reduction": (lambda c, x: c.all_reduce(x), lambda c, x: c.all_reduce(x, op="max")),
    "shape": (lambda c, x: c.all_reduce(x[:3]), lambda c, x: c.all_reduce(x)),
    "dtype": (lambda c, x: c.all_reduce(x.view(np.int32)), lambda c, x: c.all_reduce(x)),
    "root": (lambda c, x: c.broadcast(x, 0), lambda c, x: c.broadcast(x, 1)),
    "order": (
        lambda c, x: [c.all_reduce(x), c.broadcast(x)],
        lambda c, x: [c.broadcast(x), c.all_reduce(x)],
    ),
    "barrier": (lambda c, x: c.barrier(), lambda c, x: c.all_reduce(x)),
    "recv": (lambda c, x: c.recv(x, 1), lambda c, x: c.all_reduce(x)),
    "parts": (lambda c, x: c.scatter(x, x[:3]), lambda c, x: c.scatter(None, x[:2])),
}


def failure(call, comm, x):
    """The error of the first of these calls, raised by a wait."""
    try:
        works = call(comm, x)
        (works[0] if isinstance(works, list) else works).wait()
    except cs.OpError as error:
        return error.cause
    raise AssertionError("nothing was raised")


def differs(kind):
    comm = cs.distributed.init("mpi", devices=["cpu"], debug=True)
    x = cs.xp.asarray(np.zeros(3 * comm.size, np.float32), device="cpu")
    error = failure(PAIRS[kind][comm.rank > 0], comm, x)
    assert isinstance(error, cs.distributed.CollectiveMismatch), error
    assert len(error.calls) == comm.size
    sites = {re.search(rf"pushed at {re.escape(__file__)}:(\d+)", told) for told in error.calls}
    assert None not in sites or kind == "recv", error
    assert error.calls[0] != error.calls[1], error
    assert comm.is_broken
    cs.engine().clear_errors()
    return error


def send_of_another_size():
    """The receiver gets the error at once, the other ranks at their next call."""
    comm = cs.distributed.init("mpi", devices=["cpu"], debug=True)
    x = cs.xp.asarray(np.zeros(8, np.float32), device="cpu")

    def call(comm, x):
        if comm.rank == 0:
            comm.send(x, 1)
        return comm.recv(x[:4], 0) if comm.rank == 1 else comm.all_reduce(x)

    error = failure(call, comm, x)
    assert isinstance(error, cs.distributed.CollectiveMismatch), error
    assert "recv from 0 of float32 (4,)" in error.calls[1], error
    cs.engine().clear_errors()


def late():
    """The error names the rank that has not called."""
    comm = cs.distributed.init("mpi", devices=["cpu"], debug=True, timeout=0.5)
    x = cs.xp.asarray(np.zeros(8, np.float32), device="cpu")
    if comm.rank == 0:
        error = failure(lambda c, x: c.all_reduce(x), comm, x)
        assert isinstance(error, cs.distributed.CollectiveTimeout), error
        assert error.rank == 1, error
        assert "rank 1 has not made the matching call" in str(error), error
        cs.engine().clear_errors()


def main():
    for kind in PAIRS:
        differs(kind)
    send_of_another_size()
    late()
    print("told", flush=True)


main()
