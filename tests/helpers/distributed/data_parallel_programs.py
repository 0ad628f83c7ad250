"""Random programs with gradients in any order, and the expected reductions in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import cudasync as cs
from cudasync import xp

SHAPES = ((), (1,), (7,), (3, 5), (2, 3, 4), (0,), (150, 130))


@dataclass(frozen=True)
class Program:
    """A step is a list of passes, the last of which reduces. A pass has each rank's names in the
    order of their gradients, and may omit some."""

    shapes: tuple
    dtypes: tuple
    op: str
    bucket_bytes: int
    steps: tuple


def program(random, ranks):
    """The program for `ranks` ranks that the state of `random` determines."""
    count = random.randint(1, 6)
    op = random.choice(("sum", "mean"))
    kinds = (np.float32, np.float64) if op == "mean" else (np.float32, np.int32, np.int64)
    return Program(
        shapes=tuple(random.choice(SHAPES) for _ in range(count)),
        dtypes=tuple(random.choice(kinds) for _ in range(count)),
        op=op,
        bucket_bytes=random.choice((1, 64, 300, 1 << 20)),
        steps=tuple(
            tuple(
                tuple(order(random, count) for _ in range(ranks))
                for _ in range(random.randint(1, 3))
            )
            for _ in range(random.randint(1, 3))
        ),
    )


def order(random, count):
    names = random.sample(range(count), count)
    return tuple(name for name in names if random.random() > 0.1)


def number(program, name, *place):
    """A gradient of whole numbers, so that sums are exact."""
    shape, dtype = program.shapes[name], program.dtypes[name]
    first = sum((k + 2) * each for k, each in enumerate(place))
    flat = (np.arange(np.prod(shape, dtype=int)) * (name + 2) + first) % 11 - 3
    return flat.reshape(shape).astype(dtype)


def expected(program, ranks):
    """The expected reductions by step and name."""
    found = []
    for step, passes in enumerate(program.steps):
        totals = [
            np.zeros(shape, dtype)
            for shape, dtype in zip(program.shapes, program.dtypes, strict=True)
        ]
        for at, orders in enumerate(passes):
            for rank in range(ranks):
                for name in orders[rank]:
                    totals[name] = totals[name] + number(program, name, step, at, rank)
        if program.op == "mean":
            totals = [each / each.dtype.type(ranks) for each in totals]
        found.append(totals)
    return found


def data_parallel(program, comm, **options):
    weights = [
        comm.each(lambda rank, device, s=s, t=t: xp.zeros(s, dtype=t, device=device))
        for s, t in zip(program.shapes, program.dtypes, strict=True)
    ]
    return cs.parallel.DataParallel(
        weights,
        comm,
        op=program.op,
        bucket_bytes=program.bucket_bytes,
        unused="zero",
        **options,
    )


def push(program, comm, dp):
    """Push all steps; return the reductions by step and name, copied as they come."""
    found = []
    for step, passes in enumerate(program.steps):
        with dp.no_sync():
            for at, orders in enumerate(passes[:-1]):
                hand_over(program, comm, dp, (step, at), orders)
        hand_over(program, comm, dp, (step, len(passes) - 1), passes[-1])
        reduced = dp.finish()
        found.append([[each.copy() for each in reduced[name]] for name in sorted(reduced)])
    return found


def hand_over(program, comm, dp, place, orders):
    """One pass of all ranks of this process; the ranks take turns, gradient by gradient."""
    left = {rank: list(orders[rank]) for rank in comm.ranks}
    while any(left.values()):
        for rank, device in zip(comm.ranks, comm.devices, strict=True):
            if left[rank]:
                name = left[rank].pop(0)
                host = number(program, name, *place, rank)
                dp.ready(name, xp.asarray(host, device=device), rank=rank)


def raise_unless_same(found, wanted):
    """Raise an AssertionError that names the wrong gradient and rank."""
    for step, (row, want) in enumerate(zip(found, wanted, strict=True)):
        for name, (arrays, y) in enumerate(zip(row, want, strict=True)):
            for rank, x in enumerate(arrays):
                np.testing.assert_array_equal(
                    x.numpy(), y, err_msg=f"step {step}, gradient {name} of rank {rank} here"
                )
