"""The local communicator: the result of each collective, on devices and on the CPU."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cudasync as cs
from cudasync.distributed.work import Work
from cudasync.testing import HostLatch

PLACES = {
    "three": [0, 1, 2],
    "two": [0, 1],
    "one": [0],
    "twice": [0, 0],
    "cpu": ["cpu"] * 4,
    "mixed": ["cpu", 0],
}
# A length for a tree, and one for a ring, which no number of ranks divides.
LENGTHS = (1, 60, 30030)
REDUCE = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "mean": np.add,
}


@pytest.fixture(params=PLACES)
def comm(request):
    count = cs.device_count()
    places = [p if p == "cpu" else p % count for p in PLACES[request.param]]
    with cs.distributed.init("local", devices=places) as made:
        yield made


def numbers(comm, length, dtype=np.int32):
    """One host array for each rank. Their sums and products are exact."""
    return [(np.arange(length) * (r + 3) % 7 + 1).astype(dtype) for r in range(comm.size)]


def placed(comm, host):
    return comm.each(lambda rank, device: cs.array(host[rank], device=device))


def results(arrays):
    return [each.numpy() for each in arrays]


def expected(host, op):
    total = functools.reduce(REDUCE[op], host)
    return total / len(host) if op == "mean" else total


@pytest.mark.sampled(4)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("op", REDUCE)
def test_all_reduce_in_place_and_out_of_place(comm, op, length):
    host = numbers(comm, length, np.float32)
    x, out = placed(comm, host), placed(comm, host)
    comm.all_reduce(x, out, op=op).wait()
    for before, after in zip(host, results(x), strict=True):
        np.testing.assert_array_equal(before, after)
    comm.all_reduce(x, op=op)
    want = expected(host, op)
    first, *others = results(out)
    np.testing.assert_allclose(first, want, rtol=1e-6)
    for each in (*others, *results(x)):
        np.testing.assert_array_equal(each, first)


@pytest.mark.parametrize("length", LENGTHS)
def test_parts_are_reduced_gathered_and_scattered(comm, length):
    n = comm.size
    host = numbers(comm, n * length)
    rows = [each.reshape(n, length) for each in host]
    whole, part = placed(comm, host), placed(comm, numbers(comm, length))
    comm.reduce_scatter(whole, part)
    total = expected(rows, "sum")
    for rank, each in enumerate(results(part)):
        np.testing.assert_array_equal(each, total[rank])
    comm.all_gather(part, whole)
    for each in results(whole):
        np.testing.assert_array_equal(each, total.ravel())
    root = n - 1
    comm.scatter([w if r == root else None for r, w in enumerate(placed(comm, host))], part, root)
    for rank, each in enumerate(results(part)):
        np.testing.assert_array_equal(each, rows[root][rank])
    comm.gather(part, [w if r == root else None for r, w in enumerate(whole)], root)
    np.testing.assert_array_equal(whole[root].numpy(), host[root])
    out, x = placed(comm, host), placed(comm, host)
    comm.all_to_all(x, out)
    comm.all_to_all(x)
    for rank, (a, b) in enumerate(zip(results(out), results(x), strict=True)):
        np.testing.assert_array_equal(a, np.concatenate([each[rank] for each in rows]))
        np.testing.assert_array_equal(a, b)


def test_every_root_broadcasts_and_reduces(comm):
    for root in range(comm.size):
        host = numbers(comm, 50)
        x = placed(comm, host)
        comm.reduce(x, root=root)
        host[root] = expected(host, "sum")
        for before, after in zip(host, results(x), strict=True):
            np.testing.assert_array_equal(before, after)
        comm.broadcast(x, root)
        for each in results(x):
            np.testing.assert_array_equal(each, host[root])


def test_the_part_of_ones_own_may_be_in_place(comm):
    n = comm.size
    host = numbers(comm, n * 9000)
    x = placed(comm, host)
    own = [each[r * 9000 : (r + 1) * 9000] for r, each in enumerate(x)]
    comm.reduce_scatter(x, own)
    comm.all_gather(own, x)
    for each in results(x):
        np.testing.assert_array_equal(each, expected(host, "sum"))


def test_views_with_gaps_are_reduced_and_their_gaps_stay(comm):
    for length in (40, 40000):
        host = numbers(comm, length)
        x = placed(comm, host)
        comm.all_reduce([each[::2] for each in x])
        total = expected(host, "sum")
        for before, after in zip(host, results(x), strict=True):
            np.testing.assert_array_equal(after[::2], total[::2])
            np.testing.assert_array_equal(after[1::2], before[1::2])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u4", "i8", "f2", "f8"])
def test_dtypes(comm, dtype):
    host = numbers(comm, 12, dtype)
    x = placed(comm, host)
    comm.all_reduce(x, op="max")
    for each in results(x):
        np.testing.assert_array_equal(each, functools.reduce(np.maximum, host))


def test_what_is_only_moved_may_be_complex(comm):
    host = numbers(comm, 5, np.complex64)
    x = placed(comm, host)
    comm.broadcast(x, comm.size - 1)
    for each in results(x):
        np.testing.assert_array_equal(each, host[-1])
    with pytest.raises(TypeError, match="complex"):
        comm.all_reduce(x)


def test_sends_are_received_in_order_and_in_a_group_whatever_comes_first(comm):
    last = comm.size - 1
    a, b = (cs.array(np.arange(4) + k, device=comm.devices[0]) for k in (0, 10))
    to = [cs.zeros(4, np.int64, device=comm.devices[last]) for _ in range(2)]
    comm.send(a, last, rank=0)
    comm.send(b, last, rank=0)
    a += 100
    for out in to:
        comm.recv(out, 0, rank=last)
    assert [each[0] for each in results(to)] == [0, 10]
    with comm.group() as group:
        assert comm.recv(to[0], 0, rank=last) is None
        comm.send(a, last, rank=0)
        comm.recv(to[1], 0, rank=last)
        comm.send(b, last, rank=0)
    for work in group.works:
        work.wait(10)
    assert [each[0] for each in results(to)] == [100, 10]


def test_bits_are_the_same_every_time(comm):
    generator = np.random.default_rng(3)
    host = [generator.standard_normal(40000).astype(np.float32) for _ in range(comm.size)]
    runs = []
    for _ in range(3):
        x = placed(comm, host)
        comm.all_reduce(x)
        runs += [each.tobytes() for each in results(x)]
    assert len(set(runs)) == 1


def test_split_gives_each_rank_its_own(comm):
    parts = comm.split([r % 2 for r in range(comm.size)], [-r for r in range(comm.size)])
    assert len(parts) == comm.size
    assert parts[0].size == (comm.size + 1) // 2
    assert list(parts[0].devices) == list(comm.devices[::2])[::-1]
    assert comm.split([None] * comm.size) == [None] * comm.size
    comm.barrier(10)


def test_a_burst_of_calls_seldom_asks_which_are_over(monkeypatch):
    asked = []
    is_over = Work.is_over.fget
    monkeypatch.setattr(Work, "is_over", property(lambda work: asked.append(0) or is_over(work)))
    x = [cs.array(np.ones(4, np.int32), device="cpu") for _ in range(2)]
    calls = 300
    with cs.distributed.init("local", devices=["cpu", "cpu"]) as comm, HostLatch() as latch:
        cs.engine().push(latch.wait, writes=x)
        for _ in range(calls):
            comm.all_reduce(x, op="max")
        # A question at each call would give half of the square of this number.
        assert len(asked) <= 4 * calls
        latch.release()
        comm.barrier()
