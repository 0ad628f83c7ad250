"""The program of each worker of test_sync.py: a "dist_sync" store beside a store of one process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import cudasync as cs
from cudasync import xp
from cudasync.kvstore.collective_store import Between
from cudasync.kvstore.store import CopiesStore

SHAPE = (5, 3)


def on_cpu(host):
    return xp.asarray(host, device="cpu")


def given(rank, step, is_exact):
    """The values that two devices of a worker push: whole numbers, or any numbers."""
    rng = np.random.default_rng([rank, step])
    if is_exact:
        return [rng.integers(-8, 9, SHAPE).astype(np.float32) for _ in range(2)]
    return [rng.normal(size=SHAPE).astype(np.float32) for _ in range(2)]


def trained(store, workers, is_exact):
    """Three steps with the values of these workers, and with the store's action at a push."""
    out = [cs.empty(SHAPE), xp.empty(SHAPE, device="cpu")]
    for step in range(3):
        values = [x for rank in workers for x in given(rank, step, is_exact)]
        arrays = [cs.array(x) if at % 2 else on_cpu(x) for at, x in enumerate(values)]
        store.push("w", arrays, priority=step)
        store.pull("w", out, priority=-step)
    assert out[0].numpy().tobytes() == out[1].numpy().tobytes()
    return out[0].numpy()


def both(store_of, is_exact):
    """The result of all workers together, and that of one process that pushes all their values."""
    made = store_of("dist_sync")
    made.init("w", on_cpu(np.full(SHAPE, 1 + made.rank, np.float32)))
    alone = store_of("local")
    alone.init("w", on_cpu(np.ones(SHAPE, np.float32)))
    mine = trained(made, [made.rank], is_exact)
    whole = trained(alone, range(made.num_workers), is_exact)
    made.barrier()
    return made, mine, whole


def same_on_all(comm, x):
    rows = xp.empty((comm.size, x.size), device="cpu")
    comm.all_gather(on_cpu(x.reshape(1, -1)), rows)
    for row in rows.numpy():
        assert row.tobytes() == x.tobytes()


def sums(comm):
    def replaces(kind):
        return cs.kvstore.create(kind)

    def adds(kind):
        store = cs.kvstore.create(kind)
        store.set_updater(lambda key, total, stored: xp.add(stored, total, out=stored))
        return store

    for make in (replaces, adds):
        store, mine, whole = both(make, True)
        assert mine.tobytes() == whole.tobytes(), (mine, whole)
        assert (store.rank, store.num_workers, store.type) == (comm.rank, comm.size, "dist_sync")
        assert store.is_capable("optimizer")
        assert not store.is_capable("async")
        _, mine, whole = both(make, False)
        same_on_all(comm, mine)
        # DESIGN.md gives the reason: the additions are the same, in another order.
        np.testing.assert_allclose(mine, whole, atol=2 * comm.size * 30 * 2.0**-24)


def optimizers(comm, folder):
    for name, more in (("sgd", {"momentum": 0.9}), ("adam", {}), ("adagrad", {}), ("lamb", {})):

        def make(kind, name=name, more=more):
            store = cs.kvstore.create(kind)
            store.set_optimizer(name, learning_rate=0.05, weight_decay=0.01, **more)
            return store

        store, mine, whole = both(make, False)
        same_on_all(comm, mine)
        np.testing.assert_allclose(mine, whole, atol=1e-4)
        # All workers continue from the states in a file without a difference.
        file = Path(folder) / name
        store.save_optimizer_states(file, dump_optimizer=True)
        other = cs.kvstore.create("dist_sync")
        other.init("w", on_cpu(mine))
        other.load_optimizer_states(file)
        again = trained(other, [comm.rank], True)
        assert again.tobytes() == trained(store, [comm.rank], True).tobytes()


def compressed(comm):
    """Each worker's sum is compressed, and its next push includes the residual."""
    for kind in ("1bit", "2bit"):
        store, out = cs.kvstore.create("dist_sync"), xp.empty((11,), device="cpu")
        store.set_gradient_compression({"type": kind, "threshold": 0.5})
        store.init(3, xp.zeros((11,), device="cpu"))
        residuals = np.zeros((comm.size, 11), np.float32)
        for step in range(4):
            # The numbers are multiples of 1/8, so every sum is exact.
            values = [
                np.random.default_rng([rank, step]).integers(-8, 9, 11).astype(np.float32) / 8
                for rank in range(comm.size)
            ]
            store.pushpull(3, on_cpu(values[comm.rank]), out)
            residuals += values
            if kind == "1bit":
                sent = np.where(residuals > 0.5, np.float32(1), np.float32(-1))
            else:
                sent = np.where(np.abs(residuals) >= 0.5, np.sign(residuals) / 2, np.float32(0))
            residuals -= sent
            assert out.numpy().tolist() == sent.sum(axis=0).tolist()


def on_devices(comm):
    """If the communicator has devices, the values are there, and equal."""
    for kind in (None, "2bit"):
        between = Between(cs.distributed.init("mpi", devices=[0]))
        stores = cs.kvstore.create("dist_sync"), CopiesStore("nccl", between)
        outs = []
        for each in stores:
            each.init("w", on_cpu(np.full(SHAPE, 1 + comm.rank, np.float32)))
            if kind is not None:
                each.set_gradient_compression({"type": kind})
            outs.append(xp.empty(SHAPE, device="cpu"))
            each.pushpull("w", [on_cpu(x) for x in given(comm.rank, 0, True)], outs[-1])
        assert outs[0].numpy().tobytes() == outs[1].numpy().tobytes()
        assert stores[1]._value("w").device == cs.Device(0)
        same_on_all(comm, outs[1].numpy())


def calls(comm):
    store = cs.kvstore.create("dist_sync")
    outs = [cs.empty(2), cs.empty(2)]
    store.broadcast([1, 2], [cs.array(np.full(2, k + comm.rank, np.float32)) for k in (5, 7)], outs)
    assert [x.numpy().tolist() for x in outs] == [[5, 5], [7, 7]]
    store.init("rows", on_cpu(np.arange(12, dtype=np.float32).reshape(4, 3)))
    rows = xp.empty((3, 3), device="cpu")
    store.row_sparse_pull("rows", rows, [3, 0, 3])
    assert rows.numpy()[:, 0].tolist() == [9, 0, 9]
    with cs.graph() as recorded:
        store.push(1, on_cpu_ones)
        store.pull(1, outs[0])
    program = recorded.instantiate()
    for _ in range(2):
        program.launch()
        assert outs[0].numpy().tolist() == [comm.size] * 2
    for error, call in (
        (TypeError, lambda: store.init("half", xp.zeros((2,), dtype=np.float16, device="cpu"))),
        (ValueError, lambda: store.init("x", xp.zeros((2 + comm.rank,), device="cpu"))),
        (ValueError, lambda: store.init(f"x{comm.rank}", xp.zeros((2,), device="cpu"))),
        (ValueError, lambda: store.push(1, cs.zeros(3))),
        (OSError, lambda: fails_to_save(store)),
    ):
        try:
            call()
        except error:
            continue
        except cs.distributed.DistError:
            assert error is OSError
            assert comm.rank
            continue
        raise AssertionError(f"no {error.__name__}")
    store.barrier()
    store.close()


def fails_to_save(store):
    store.set_optimizer("adam")
    store.save_optimizer_states("/no/such/folder/file")


def main():
    comm = cs.distributed.init("mpi", devices=["cpu"])
    sums(comm)
    optimizers(comm, sys.argv[1])
    compressed(comm)
    if comm.size == 2:
        on_devices(comm)
    calls(comm)
    print("ok", comm.rank, "of", comm.size, flush=True)


on_cpu_ones = on_cpu(np.ones(2, np.float32))
main()
