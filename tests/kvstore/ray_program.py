"""The program of test_async_ray.py: workers here and in Ray's processes, and killed servers."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
from helpers.distributed.async_worker import BIG_ELEMENTS, does_all
from helpers.distributed.listening_addresses import listening

import cudasync as cs
from cudasync import xp

WORKERS, PUSHES = 2, 60


def store_of(rank, group, workers=WORKERS, servers=2, **more):
    return cs.kvstore.create(
        "dist_async",
        servers=servers,
        transport="ray",
        group=group,
        rank=rank,
        num_workers=workers,
        timeout=180,
        big_elements=BIG_ELEMENTS,
        **more,
    )


def everything(rank, folder):
    with store_of(rank, "everything") as store:
        does_all(store, Path(folder))


def processes_of(store):
    import ray

    return [ray.get(each.process.remote()) for each in store._worker._transport.actors]


def pushes(rank, folder, after):
    """Each worker pushes in its own column. No pull goes back, or lacks this worker's pushes."""
    with store_of(rank, "killed", folder=folder) as store:
        store.set_optimizer("sgd", learning_rate=1.0)
        store.init("w", xp.zeros((100, WORKERS), device="cpu"))
        x, seen = np.zeros((100, WORKERS), np.float32), np.zeros((100, WORKERS))
        x[:, rank] = 1
        for step in range(1, PUSHES + 1):
            store.push("w", xp.asarray(x, device="cpu"))
            after(store, step)
            out = xp.empty((100, WORKERS), device="cpu")
            store.pull("w", out)
            value = -out.numpy()
            assert (value[:, rank] == step).all(), value
            assert (value >= seen).all(), (value, seen)
            seen = value
        store.barrier()
        out = xp.empty((100, WORKERS), device="cpu")
        store.pull("w", out)
        assert (-out.numpy() == PUSHES).all(), out.numpy()
        store.barrier()


def kills(store, step):
    """Kill a server while pushes are in flight."""
    if step in (10, 30, 50):
        os.kill(processes_of(store)[step // 10 % 4 // 2], signal.SIGKILL)


def killed_servers(ray, folder):
    other = ray.remote(num_cpus=0)(pushes).remote(1, folder, lambda store, step: None)
    pushes(0, folder, kills)
    ray.get(other)


def lost_server():
    """Without a folder nothing could be restored, so a push gets an error."""
    store = store_of(0, "lost", workers=1)
    store.set_optimizer("sgd", learning_rate=1.0)
    store.init(0, xp.zeros((3,), device="cpu"))
    store.push(0, xp.ones((3,), device="cpu")).wait()
    os.kill(processes_of(store)[0], signal.SIGKILL)
    failure = None
    while failure is None:
        failure = store.push(0, xp.ones((3,), device="cpu")).exception()
    assert isinstance(failure.cause, cs.kvstore.ServerLost), failure
    cs.engine().clear_errors()
    store.close()


class Other:
    """A worker in one of Ray's processes."""

    def __init__(self):
        self.store = store_of(1, "workers")
        self.store.set_optimizer("sgd", learning_rate=1.0)
        self.store.init("w", xp.zeros((3,), device="cpu"))

    def push(self):
        self.store.push("w", xp.ones((3,), device="cpu")).wait()

    def process(self):
        return os.getpid()


def killed_worker(ray):
    """The other worker goes on, without what the dead worker had not pushed."""
    other = ray.remote(num_cpus=0)(Other).remote()
    store = store_of(0, "workers")
    store.set_optimizer("sgd", learning_rate=1.0)
    store.init("w", xp.zeros((3,), device="cpu"))
    ray.get(other.push.remote())
    os.kill(ray.get(other.process.remote()), signal.SIGKILL)
    out = xp.empty((3,), device="cpu")
    for _ in range(5):
        store.push("w", xp.ones((3,), device="cpu"))
        store.pull("w", out)
    assert out.numpy().tolist() == [-6] * 3
    store.close()


def main():
    folder = Path(sys.argv[1])
    first = store_of(0, "first", workers=1)
    first.close()
    import ray

    open_to = listening(os.environ["CUDASYNC_TEST_RUN"])
    assert open_to
    assert not [each for each in open_to if not each.is_loopback], open_to
    assert os.environ["RAY_AUTH_MODE"] == "token"
    print("closed to others", flush=True)
    other = ray.remote(num_cpus=0)(everything).remote(1, folder)
    everything(0, folder)
    ray.get(other)
    print("everything", flush=True)
    killed_servers(ray, folder / "kept")
    print("killed servers", flush=True)
    lost_server()
    print("lost server", flush=True)
    killed_worker(ray)
    print("killed worker", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
