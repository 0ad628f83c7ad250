"""One process of bench_kvstore: it repeats what the bench orders, and reports the time.

    python -m cudasync launch -n 2 bench/distributed/store_process.py store|bare ADDRESS
    python bench/distributed/store_process.py ray ADDRESS

A worker pushes a gradient to a server, which subtracts half of it, and pulls the value.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import time
import zlib
from multiprocessing.connection import Client
from typing import ClassVar

import numpy as np

import cudasync as cs
from bench.distributed.by_gloo import ByGloo
from cudasync import xp

RATE = np.float32(0.5)


def update(value: np.ndarray, gradient: np.ndarray) -> None:
    """Update by hand, in place; the gradient serves as scratch memory."""
    np.multiply(gradient, RATE, out=gradient)
    np.subtract(value, gradient, out=value)


class Process:
    """The contenders, by the names of their methods, on arrays of `self.nbytes`."""

    rank = 0
    nbytes = -1

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, nbytes: int) -> None:
        """Make the contenders' arrays, and clear them."""
        self.nbytes = nbytes
        self.gradient = np.zeros(nbytes // 4, np.float32)
        self.out = np.zeros(nbytes // 4, np.float32)

    def take_part(self, name: str) -> str:
        """The version of an installed peer; ImportError otherwise."""
        return ""

    def run(self, name: str, nbytes: int, loops: int) -> float:
        if nbytes != self.nbytes:
            self.prepare(nbytes)
        action = getattr(self, name)
        start = time.perf_counter()
        for _ in range(loops):
            action()
        return time.perf_counter() - start

    def checksum(self, name: str, nbytes: int) -> int:
        """The checksum of the value after two pushes of numbers to a value of zeros."""
        self.prepare(nbytes)
        self.fill((np.arange(nbytes // 4) % 1000).astype(np.float32))
        for _ in range(2):
            getattr(self, name)()
        found = zlib.crc32(self.result().tobytes())
        self.nbytes = -1
        return found

    def fill(self, numbers: np.ndarray) -> None:
        self.gradient[:] = numbers

    def result(self) -> np.ndarray:
        return self.out

    def close(self) -> None:
        """Do what is necessary at the end: here nothing."""


class Bare(ByGloo, Process):
    """Two ranks: the exchange by mpi4py and by gloo, and the store without servers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from mpi4py import MPI

        self.MPI, self.world = MPI, MPI.COMM_WORLD.Dup()
        self.rank, self.ranks = self.world.rank, self.world.size
        self.store = cs.kvstore.create("dist_sync")
        self.keys = 0

    def prepare(self, nbytes: int) -> None:
        super().prepare(nbytes)
        self.value = np.zeros(nbytes // 4, np.float32)
        self.sum = self.gradient
        self.array = xp.zeros((nbytes // 4,), device="cpu")
        self.pulled = xp.zeros((nbytes // 4,), device="cpu")
        self.keys += 1
        self.store.init(self.keys, self.array)
        if "gloo" in self.__dict__:
            self.tensors = [self.torch.zeros(nbytes // 4) for _ in range(3)]

    def run(self, name: str, nbytes: int, loops: int) -> float:
        if nbytes != self.nbytes:
            self.prepare(nbytes)
        self.world.Barrier()
        return super().run(name, nbytes, loops)

    def fill(self, numbers: np.ndarray) -> None:
        super().fill(numbers)
        self.array = xp.asarray(numbers, device="cpu")
        self.array.wait()
        if "gloo" in self.__dict__:
            self.tensors[0][:] = self.torch.from_numpy(numbers)

    def bare(self) -> None:
        self.last = "out"
        if self.rank:
            self.world.Recv(self.out, source=0)
            update(self.value, self.out)
            self.world.Send(self.value, dest=0)
        else:
            self.world.Send(self.gradient, dest=1)
            self.world.Recv(self.out, source=1)

    def torch_gloo(self) -> None:
        self.last = "tensor"
        given, out, value = self.tensors
        if self.rank:
            self.gloo.recv(out, 0)
            value.sub_(out, alpha=0.5)
            self.gloo.send(value, 0)
        else:
            self.gloo.send(given, 1)
            self.gloo.recv(out, 1)

    def bare_sum(self) -> None:
        self.last = "out"
        self.world.Allreduce(self.gradient, self.out)

    def torch_sum(self) -> None:
        """PyTorch sums in place. The zeros of two ranks stay zeros."""
        self.last = "tensor"
        self.tensors[1].copy_(self.tensors[0])
        self.gloo.all_reduce(self.tensors[1])

    def ours_sum(self) -> None:
        self.last = "pulled"
        self.store.push(self.keys, self.array)
        self.store.pull(self.keys, self.pulled)
        self.pulled.wait()

    def result(self) -> np.ndarray:
        if self.last == "out":
            return self.out
        return self.pulled.numpy() if self.last == "pulled" else self.tensors[1].numpy()

    def take_part(self, name: str) -> str:
        return str(self.gloo and self.torch.__version__)


class Store(Process):
    """A worker of a "dist_async" store. On the server's rank this never returns."""

    made: ClassVar[dict] = {}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = cs.kvstore.create("dist_async", big_elements=1 << 40, **self.made)
        self.store.set_optimizer("sgd", learning_rate=float(RATE))
        self.keys = 0

    def prepare(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.array = xp.zeros((nbytes // 4,), device="cpu")
        self.pulled = xp.zeros((nbytes // 4,), device="cpu")
        self.keys += 1
        self.store.init(self.keys, self.array)

    def fill(self, numbers: np.ndarray) -> None:
        self.array = xp.asarray(numbers, device="cpu")

    def ours(self) -> None:
        self.store.push(self.keys, self.array)
        self.store.pull(self.keys, self.pulled)
        self.pulled.wait()

    def ours_at_once(self) -> None:
        self.store.pushpull(self.keys, self.array, self.pulled)
        self.pulled.wait()

    def result(self) -> np.ndarray:
        return self.pulled.numpy()

    def close(self) -> None:
        self.store.close()


class Actors(Store):
    """The same over Ray, and an actor written by hand."""

    made: ClassVar[dict] = {"transport": "ray"}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import ray

        self.ray = ray

        class Bare:
            def set(self, size: int) -> None:
                self.value = np.zeros(size, np.float32)

            def push(self, gradient: np.ndarray) -> None:
                self.value -= gradient * np.float32(0.5)

            def pull(self) -> np.ndarray:
                return self.value

        self.actor = ray.remote(num_cpus=0)(Bare).remote()

    def prepare(self, nbytes: int) -> None:
        super().prepare(nbytes)
        Process.prepare(self, nbytes)
        self.ray.get(self.actor.set.remote(nbytes // 4))

    def fill(self, numbers: np.ndarray) -> None:
        super().fill(numbers)
        self.gradient[:] = numbers

    def bare(self) -> None:
        self.last = "bare"
        self.ray.get(self.actor.push.remote(self.gradient))
        self.out[:] = self.ray.get(self.actor.pull.remote())

    def ours(self) -> None:
        self.last = "ours"
        super().ours()

    def ours_at_once(self) -> None:
        self.last = "ours"
        super().ours_at_once()

    def result(self) -> np.ndarray:
        return self.out if self.last == "bare" else super().result()

    def take_part(self, name: str) -> str:
        return str(self.ray.__version__)


PARTS = {"store": Store, "bare": Bare, "ray": Actors}


def main() -> None:
    part, address = sys.argv[1:]
    process = PARTS[part](Path(address).parent)
    with Client(address, "AF_UNIX") as line:
        line.send(process.rank)
        while True:
            name, *arguments = line.recv()
            if name == "end":
                process.close()
                return
            try:
                line.send(getattr(process, name)(*arguments))
            except ImportError as error:
                line.send(error)


main()
