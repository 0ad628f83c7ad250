"""Random programs of collectives between ops on several devices, and their results in NumPy."""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import strategies as st

import cudasync as cs

# A size for the tree algorithm and one for the ring (64 KiB and more of int32). No number of ranks
# divides all parts.
LENGTHS = (12, 18000)
_REDUCE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}

_small = st.integers(0, 2)
_op = st.sampled_from(sorted(_REDUCE))
STEPS = st.one_of(
    st.tuples(st.just("scale"), _small, _small, st.integers(2, 5)),
    st.tuples(st.just("fill"), _small, _small, st.integers(1, 9)),
    st.tuples(st.just("host"), _small, _small, st.integers(1, 9)),
    st.tuples(st.just("all_reduce"), _small, _small, _op),
    st.tuples(st.just("half"), _small, _small, _op),
    st.tuples(st.just("reduce"), _small, _small, _op),
    st.tuples(st.just("broadcast"), _small, _small, st.none()),
    st.tuples(st.just("all_to_all"), _small, _small, st.none()),
    st.tuples(st.just("parts"), _small, _small, _op),
    st.tuples(st.just("send"), _small, _small, _small),
)


# Numbers that reductions may treat unlike NumPy, by their bits as well.
SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 5e-324, 1e-45)


def extremes():
    """Reductions of floats by min and max: the call, the array's length, and for each rank the
    first of the special numbers, and the step to the next one."""
    walk = st.tuples(st.integers(0, 9), st.sampled_from((1, 3, 7, 9)))
    return st.tuples(
        st.sampled_from(("all_reduce", "reduce", "reduce_scatter")),
        st.sampled_from(("min", "max")),
        st.sampled_from(("float32", "float64")),
        st.sampled_from((1, 7, 3000)),
        st.lists(walk, min_size=3, max_size=3),
    )


def raise_unless_extreme(drawn, comm):
    """Run one of `extremes` on this process's ranks, and compare with NumPy."""
    call, op, dtype, length, walks = drawn
    at = np.arange(length * comm.size)
    rows = [np.array(SPECIAL)[(a + b * at) % 10].astype(dtype) for a, b in walks[: comm.size]]
    wanted = functools.reduce(_REDUCE[op], rows)
    x = comm.each(lambda rank, device: cs.array(rows[rank], device=device))
    if call == "all_reduce":
        comm.all_reduce(x, op=op)
    elif call == "reduce":
        comm.reduce(x, op=op, root=comm.size - 1)
        x = [each for rank, each in zip(comm.ranks, x, strict=True) if rank == comm.size - 1]
    else:
        out = [each[r * length : (r + 1) * length] for r, each in zip(comm.ranks, x, strict=True)]
        comm.reduce_scatter(x, out, op=op)
        x, wanted = out, wanted.reshape(comm.size, length)[list(comm.ranks)]
    for each, want in zip(x, np.broadcast_to(wanted, (len(x), wanted.shape[-1])), strict=True):
        assert np.array_equal(each.numpy(), want, equal_nan=True), (drawn, comm)


def programs(length=8):
    """Steps on three arrays per rank: a kind, two numbers of arrays or ranks, and a value."""
    return st.tuples(st.sampled_from(LENGTHS), st.lists(STEPS, min_size=1, max_size=length))


def start(length, size):
    return [
        [((np.arange(length) * (a + 2) + r * 5) % 11 + 1).astype(np.int32) for r in range(size)]
        for a in range(3)
    ]


def expected(program, size):
    """The result in NumPy, step by step."""
    length, steps = program
    rows = start(length, size)
    for kind, a, b, value in steps:
        x, y, root = rows[a], rows[b], b % size
        if kind == "scale":
            x[root] *= np.int32(value)
        elif kind == "fill":
            x[root][:] = value
        elif kind == "host":
            x[root] += np.int32(value)
        elif kind == "all_reduce":
            total = functools.reduce(_REDUCE[value], x)
            rows[b] = [total.copy() for _ in range(size)]
        elif kind == "half":
            total = functools.reduce(_REDUCE[value], [each[: length // 2] for each in x])
            for each in x:
                each[: length // 2] = total
        elif kind == "reduce":
            x[root] = functools.reduce(_REDUCE[value], x)
        elif kind == "broadcast":
            rows[a] = [x[root].copy() for _ in range(size)]
        elif kind == "all_to_all":
            parts = [each.reshape(size, -1) for each in x]
            rows[b] = [np.concatenate([each[r] for each in parts]) for r in range(size)]
        elif kind == "parts":
            total = functools.reduce(_REDUCE[value], x)
            rows[a] = [total.copy() for _ in range(size)]
        elif kind == "send":
            y[value % size] = x[root].copy()
    return rows


def place(program, comm):
    """Make the program's arrays on the communicator's devices."""
    rows = start(program[0], comm.size)
    return [
        comm.each(lambda rank, device, row=row: cs.array(row[rank], device=device)) for row in rows
    ]


def run(program, comm, rows):
    """Push all steps for the ranks of this process."""
    length, steps = program
    for kind, a, b, value in steps:
        x, y, root = rows[a], rows[b], b % comm.size
        on_root = [x[at] for at, rank in enumerate(comm.ranks) if rank == root]
        if kind == "scale":
            for each in on_root:
                each *= value
        elif kind == "fill":
            for each in on_root:
                each[:] = value
        elif kind == "host":
            for each in on_root:
                add_on_host(each, value)
        elif kind == "all_reduce":
            comm.all_reduce(x, y, op=value)
        elif kind == "half":
            comm.all_reduce([each[: length // 2] for each in x], op=value)
        elif kind == "reduce":
            comm.reduce(x, op=value, root=root)
        elif kind == "broadcast":
            comm.broadcast(x, root)
        elif kind == "all_to_all":
            comm.all_to_all(x, y)
        elif kind == "parts":
            part = length // comm.size
            own = [each[r * part : (r + 1) * part] for r, each in zip(comm.ranks, x, strict=True)]
            comm.reduce_scatter(x, own, op=value)
            comm.all_gather(own, x)
        elif kind == "send":
            to = value % comm.size
            for each in on_root:
                comm.send(each, to, rank=root)
            for at, rank in enumerate(comm.ranks):
                if rank == to:
                    comm.recv(y[at], root, rank=to)


def add_on_host(x, value):
    """A host op between two copies."""
    near = np.empty(x.shape, x.dtype)

    def add():
        near[:] += value

    cs.copy(near, x)
    cs.engine().push(add, reads=[near], writes=[near], name="add on the host")
    cs.copy(x, near)


def results(rows):
    return [[each.numpy() for each in row] for row in rows]


def raise_unless_same(found, wanted, ranks=None):
    """Raise an AssertionError that names the wrong array and rank; `ranks` are those in `found`."""
    for a, (row, want) in enumerate(zip(found, wanted, strict=True)):
        chosen = range(len(want)) if ranks is None else ranks
        for rank, x in zip(chosen, row, strict=True):
            assert np.array_equal(x, want[rank]), f"array {a} of rank {rank}"
