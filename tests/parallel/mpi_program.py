"""The program of each rank of test_mpi.py: training parts between processes, against NumPy."""

from __future__ import annotations

import sys
from random import Random

import numpy as np
import pytest
from helpers.distributed import pipeline_models, tensor_parallel
from helpers.distributed.data_parallel_programs import (
    data_parallel,
    expected,
    program,
    push,
    raise_unless_same,
)

import cudasync as cs
from cudasync import xp
from cudasync.array.host.memory import view_of
from cudasync.parallel.data_parallel import DataParallel
from cudasync.testing import HostLatch


def cases(comm):
    """The number of cases, which is smaller where kernels must be compiled."""
    return 12 if str(comm.devices[0]) == "cpu" else 2


def gradients(comm):
    """Random programs, in which each rank computes its gradients in its own order."""
    for seed in range(cases(comm)):
        drawn = program(Random(seed), comm.size)
        found = push(drawn, comm, data_parallel(drawn, comm))
        raise_unless_same(found, expected(drawn, comm.size))
    drawn = program(Random(3), comm.size)
    dp = data_parallel(drawn, comm)
    with cs.graph() as graph:
        found = push(drawn, comm, dp)
    graph.instantiate().launch().wait()
    raise_unless_same(found, expected(drawn, comm.size))


def overlap(comm):
    """The first bucket is reduced before the op that computes the last gradient has ended."""
    weights = {name: xp.zeros((4,), device=comm.devices[0]) for name in ("first", "second")}
    dp = DataParallel(weights, comm, bucket_bytes=16, op="sum")
    latch = HostLatch()
    late = xp.zeros((4,), device="cpu")

    def write():
        latch.wait()
        view_of(late)[...] = comm.rank

    dp.ready("second", xp.ones((4,), device=comm.devices[0]))
    cs.engine().push(write, writes=[late])
    dp.ready("first", late.to_device(comm.devices[0]))
    dp.works[0].wait(60)
    assert not dp.works[1].done()
    latch.release()
    found = dp.finish()
    assert found["second"].numpy().tolist() == [comm.size] * 4
    assert found["first"].numpy().tolist() == [sum(range(comm.size))] * 4


def plans(comm):
    """If the ranks' plans differ, all ranks get an error."""
    names = ("a", "b") if comm.rank else ("b", "a")
    weights = {name: xp.zeros((3,), device=comm.devices[0]) for name in names}
    with pytest.raises(ValueError, match="rank 0 have different plans"):
        DataParallel(weights, comm)


def ready_order(comm):
    """The planted bug: buckets go in the order of their completion, which differs between ranks."""

    def launch(self):
        for bucket in self._buckets:
            if not self._missing[bucket.index] and bucket.index not in self.launched:
                self.launched.add(bucket.index)
                self._works.append(self._hook(bucket))

    was, DataParallel._launch = DataParallel._launch, launch
    weights = {name: xp.zeros((4,), device=comm.devices[0]) for name in (0, 1)}
    dp = DataParallel(weights, comm, bucket_bytes=16, op="sum")
    dp.launched = set()
    for name in (0, 1) if comm.rank else (1, 0):
        dp.ready(name, xp.full((4,), 10.0**name, device=comm.devices[0]))
    found = dp.finish()
    wrong = [found[name].numpy()[0] != comm.size * 10**name for name in (0, 1)]
    DataParallel._launch = was
    assert any(wrong), "a planted order is not found"


def float16(comm):
    weight = xp.zeros((1001,), device=comm.devices[0])
    dp = DataParallel([weight], comm, hook=cs.parallel.as_float16)
    host = [
        np.random.default_rng(r).standard_normal(1001).astype(np.float32) for r in range(comm.size)
    ]
    dp.ready(0, xp.asarray(host[comm.rank], device=comm.devices[0]))
    found = dp.finish()[0]
    assert np.abs(found.numpy() - np.mean(host, axis=0)).max() < 2.0**-9 * np.abs(host).max()
    rows = xp.zeros((1001 * comm.size,), device=comm.devices[0])
    comm.all_gather(found, rows)
    for row in rows.numpy().reshape(comm.size, -1):
        np.testing.assert_array_equal(row, found.numpy())


def stages(comm):
    """Models in stages, one stage on each rank, by both schedules; and a recorded model."""
    for seed in range(cases(comm)):
        drawn = pipeline_models.model(Random(seed), comm.size)
        made, layers = pipeline_models.pipeline(drawn, comm)
        losses = pipeline_models.step(drawn, comm, made)
        pipeline_models.raise_unless_right(drawn, comm, layers, losses)
        most = pipeline_models.most_promised(drawn, comm.rank, comm.size)
        assert layers[0].most <= most, f"stage {comm.rank} keeps {layers[0].most}"
    made, layers = pipeline_models.pipeline(drawn, comm)
    with cs.graph() as graph:
        losses = pipeline_models.step(drawn, comm, made)
    executable = graph.instantiate()
    for _ in range(3):
        executable.launch()
    pipeline_models.raise_unless_right(drawn, comm, layers, losses, times=3)


def products(comm):
    for seed in range(cases(comm)):
        of = tensor_parallel.sizes(Random(seed))
        tensor_parallel.raise_unless_right(of, comm, tensor_parallel.Perceptron(of, comm).step())


def both(comm):
    """Stages on pairs of ranks, and each stage's gradients added up over the pairs."""
    if comm.size != 4:
        return
    pair, alike = comm.split(comm.rank // 2), comm.split(comm.rank % 2)
    drawn = pipeline_models.Model((3, 2, 4), 5, 3, "1f1b")
    made, (layer,) = pipeline_models.pipeline(drawn, pair)
    dp = DataParallel([layer.weight], alike, op="sum")
    pipeline_models.step(drawn, pair, made)
    dp.ready(0, layer.gradient)
    _, gradients = pipeline_models.in_one_piece(drawn)
    np.testing.assert_array_equal(dp.finish()[0].numpy(), 2 * gradients[pair.rank])


def main():
    place = "cpu" if sys.argv[1] == "cpu" else int(sys.argv[1])
    comm = cs.distributed.init("mpi", devices=[place], timeout=60)
    for part in (gradients, overlap, plans, ready_order, float16, stages, products, both):
        part(comm)
    comm.barrier()
    print("ok")


main()
