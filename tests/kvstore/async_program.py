"""The program of each rank of test_async_mpi.py: workers, and ranks that are servers."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
from helpers.distributed.async_worker import BIG_ELEMENTS, does_all

import cudasync as cs
from cudasync import xp


def everything(servers, folder):
    with cs.kvstore.create(
        "dist_async", servers=int(servers), big_elements=BIG_ELEMENTS, timeout=50
    ) as store:
        does_all(store, Path(folder))
        print("ok", store.rank, "of", store.num_workers, flush=True)


def killed(folder):
    """The last worker dies between its pushes. The others go on, although none may be ahead."""
    store = cs.kvstore.create("dist_async", servers=1, timeout=50, staleness=0, folder=folder)
    store.set_optimizer("sgd", learning_rate=1.0)
    store.init("w", xp.zeros((3,), device="cpu"))
    store.barrier()
    x = np.zeros(3, np.float32)
    x[store.rank] = 1
    for step in range(1, 4):
        store.push("w", xp.asarray(x, device="cpu")).wait()
        if store.rank == 2 and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    out = xp.empty((3,), device="cpu")
    store.pull("w", out)
    value = -out.numpy()
    while not (value[:2] == 3).all():
        store.pull("w", out)
        value = -out.numpy()
    assert value[2] <= 2
    store.close()
    print("ok", store.rank, flush=True)


def killed_in_sync():
    """The last worker ends between two steps, and the others get an error."""
    store = cs.kvstore.create("dist_sync", timeout=20)
    store.init("w", xp.zeros((3,), device="cpu"))
    x = xp.ones((3,), device="cpu")
    store.push("w", x).wait()
    if store.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    failure = None
    while failure is None:
        try:
            failure = store.push("w", x).exception()
        except cs.distributed.CommunicatorBroken as error:
            failure = error
    cs.engine().clear_errors()
    cause = getattr(failure, "cause", failure)
    assert isinstance(cause, cs.distributed.DistError), failure
    print("told", type(cause).__name__, flush=True)
    os._exit(0)


if __name__ == "__main__":
    {"everything": everything, "killed": killed, "killed_in_sync": killed_in_sync}[sys.argv[1]](
        *sys.argv[2:]
    )
