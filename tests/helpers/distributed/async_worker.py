"""Every call of a "dist_async" store, made by each worker, with any kind of server.

Each worker pushes in its own column, so a value tells how many pushes of each worker were applied.
"""

from __future__ import annotations

import numpy as np

import cudasync as cs
from cudasync import xp

# One key on all servers by rows, one on all servers by elements, and one on a single server.
SHAPES = {"rows": (50, 4), "flat": (1, 200), 7: (4,)}
BIG_ELEMENTS = 100


def on_cpu(host):
    return xp.asarray(host, device="cpu")


def column(rank, shape):
    made = np.zeros(shape, np.float32)
    made[..., rank::4] = 1
    return made


def refused(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def does_all(store, folder):
    """Make every call; all workers and servers see `folder`."""
    rank, workers = store.rank, store.num_workers
    assert store.type == "dist_async"
    assert all(store.is_capable(each) for each in ("optimizer", "async", "checkpoint"))
    names = list(SHAPES)
    value = [on_cpu(np.full(shape, rank, np.float32)) for shape in SHAPES.values()]
    for name, each in zip(names, value, strict=True):
        store.init(name, each)
    if rank == 0:
        refused(ValueError, lambda: store.push("rows", value[0]))
    store.barrier()
    store.set_optimizer("sgd", learning_rate=1.0)
    pushes_count(store, names)
    devices_and_rows(store)
    states_and_checkpoints(store, folder)
    compressed(store)
    refusals(store)
    store.barrier()
    assert workers == store.num_workers


def pushes_count(store, names):
    """The value is rank 0's initial one minus all pushes, and a worker reads its own writes."""
    rank, workers = store.rank, store.num_workers
    for step in range(1, 11):
        for name in names:
            shape = SHAPES[name]
            out = xp.empty(shape, device="cpu")
            store.push(name, on_cpu(column(rank, shape)), priority=step)
            store.pull(name, out, priority=-step)
            own = -out.numpy()[..., rank::4]
            assert (own == step).all(), (name, step, own)
    store.barrier()
    for name in names:
        out = cs.empty(SHAPES[name])
        store.pull(name, out)
        wanted = sum(10 * column(each, SHAPES[name]) for each in range(workers))
        np.testing.assert_array_equal(-out.numpy(), wanted)
    store.barrier()


def devices_and_rows(store):
    """Lists of values and outs on devices and the CPU, row access, and a recorded step."""
    rank, workers = store.rank, store.num_workers
    x = column(rank, (50, 4))
    outs = [cs.empty((50, 4)), xp.empty((50, 4), device="cpu")]
    store.pushpull("rows", [cs.array(x), on_cpu(x)], outs)
    assert outs[0].numpy().tobytes() == outs[1].numpy().tobytes()
    assert (outs[0].numpy()[:, rank] == -12).all()
    gradient = on_cpu(x)
    with cs.graph() as recorded:
        store.push("rows", gradient)
        store.pull("rows", outs[1])
    program = recorded.instantiate()
    for step in (13, 14):
        program.launch()
        assert (outs[1].numpy()[:, rank] == -step).all()
    store.barrier()
    for name in ("rows", "flat"):
        shape = SHAPES[name]
        ids = [49, 0, 25, 49] if shape[0] > 1 else [0, 0]
        rows, whole = xp.empty((len(ids), *shape[1:]), device="cpu"), cs.empty(shape)
        store.row_sparse_pull(name, rows, ids)
        store.pull(name, whole)
        np.testing.assert_array_equal(rows.numpy(), whole.numpy()[ids])
        assert (whole.numpy()[:, :workers] < 0).all()
    store.barrier()


def refusals(store):
    """The worker that makes a wrong call gets the error."""
    good = xp.zeros((4,), device="cpu")
    for error, call in (
        (ValueError, lambda: store.push(7, xp.zeros((5,), device="cpu"))),
        (TypeError, lambda: store.push(7, xp.zeros((4,), dtype=np.int32, device="cpu"))),
        (KeyError, lambda: store.pull(8, good)),
        (ValueError, lambda: store.init(7, good)),
        (ValueError, lambda: store.set_updater(lambda key, total, stored: None)),
        (IndexError, lambda: store.row_sparse_pull("rows", cs.empty((1, 4)), [50])),
        (OSError, lambda: store.checkpoint("/proc/none")),
    ):
        refused(error, call)
    # Rank 0 decides shape and dtype.
    for key, of_others in (
        ("shape", xp.zeros((3,), device="cpu")),
        ("dtype", xp.zeros((4,), dtype=np.float64, device="cpu")),
    ):
        if store.rank == 0:
            store.init(key, good)
        else:
            refused(ValueError, lambda key=key, of_others=of_others: store.init(key, of_others))
    store.barrier()


def states_and_checkpoints(store, folder):
    """States move to a file, to a store of one process, and back; servers write a checkpoint."""
    store.set_optimizer("adam", learning_rate=0.1)
    for name, shape in SHAPES.items():
        store.push(name, on_cpu(np.ones(shape, np.float32)))
    store.barrier()
    store.save_optimizer_states(folder / "states", dump_optimizer=True)
    alone = cs.kvstore.create("local")
    for name, shape in SHAPES.items():
        alone.init(name, xp.zeros(shape, device="cpu"))
    alone.load_optimizer_states(folder / "states")
    store.load_optimizer_states(folder / "states")
    if store.rank == 0:
        store.checkpoint(folder)
    store.barrier()
    before = pulled(store)
    store.barrier()
    store.push("rows", on_cpu(np.ones((50, 4), np.float32)))
    store.barrier()
    assert (pulled(store) != before).any()
    store.restore(folder)
    np.testing.assert_array_equal(pulled(store), before)
    store.barrier()


def pulled(store):
    out = cs.empty((50, 4))
    store.pull("rows", out)
    return out.numpy()


def compressed(store):
    """Each push sends plus or minus 1/2, and later pushes send the remainder."""
    store.set_optimizer("sgd", learning_rate=1.0)
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.init("packed", xp.zeros((4,), device="cpu"))
    out, x = xp.zeros((4,), device="cpu"), np.zeros(4, np.float32)
    x[store.rank] = 0.375
    for step in range(1, 9):
        store.pushpull("packed", on_cpu(x), out)
        moved = -float(out.numpy()[store.rank])
        assert abs(moved - 0.375 * step) < 0.5
    store.barrier()
    store.pull("packed", out)
    assert out.numpy().tolist() == [-3.0 * (rank < store.num_workers) for rank in range(4)]
