"""One rank of bench_collectives: it repeats what the bench orders, and reports the time.

    python -m cudasync launch -n 2 bench/distributed/collective_rank.py ADDRESS

The bench sends the orders to each rank by a socket, so no rank polls for another between two
samples. The time runs from a barrier to the end of this rank's last repetition.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import time
import zlib
from multiprocessing.connection import Client

import numpy as np
from mpi4py import MPI

import cudasync as cs
from bench.distributed.by_gloo import ByGloo

WORLD = MPI.COMM_WORLD


class Rank(ByGloo):
    """The contenders, by method name. Each adds the values of all ranks, in place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rank, self.ranks = WORLD.rank, WORLD.size
        self.comm = cs.distributed.init("mpi", devices=["cpu"])

    def prepare(self, nbytes: int) -> None:
        """Make arrays of zeros, whose sum stays zero however often it is taken."""
        self.host = np.zeros(nbytes // 4, np.float32)
        self.array = cs.xp.asarray(np.zeros(nbytes // 4, np.float32), device="cpu")
        self.array.wait()
        if "gloo" in self.__dict__:
            self.tensor = self.torch.zeros(nbytes // 4)

    def bare(self) -> None:
        WORLD.Allreduce(MPI.IN_PLACE, self.host)

    def ours(self) -> None:
        self.comm.all_reduce(self.array).wait()

    def torch_gloo(self) -> None:
        self.gloo.all_reduce(self.tensor)

    # A collective beside equally long work.

    def transfer(self) -> None:
        self.ours()

    def sleep(self) -> None:
        """A device's part meanwhile, which uses no processor of the host."""
        cs.engine().push(lambda: time.sleep(self.seconds), name="device's part").wait()

    def sleep_and_transfer(self) -> None:
        aside = cs.engine().push(lambda: time.sleep(self.seconds), name="device's part")
        self.comm.all_reduce(self.array).wait()
        aside.wait()

    def count_passes(self, seconds: float) -> None:
        """Find how many passes over an array take this many seconds of a processor."""
        self.work = np.ones(1 << 16, np.float32)
        start = time.perf_counter()
        for _ in range(200):
            np.sqrt(self.work, out=self.work)
        self.passes = max(1, round(200 * seconds / (time.perf_counter() - start)))

    def pass_over(self) -> None:
        for _ in range(self.passes):
            np.sqrt(self.work, out=self.work)

    def compute(self) -> None:
        cs.engine().push(self.pass_over, name="compute").wait()

    def compute_and_transfer(self) -> None:
        aside = cs.engine().push(self.pass_over, name="compute")
        self.comm.all_reduce(self.array).wait()
        aside.wait()

    # The orders of the bench.

    def take_part(self, name: str) -> str:
        """The version of an installed peer; ImportError otherwise."""
        return str(self.gloo and self.torch.__version__) if name == "torch_gloo" else ""

    def run(self, name: str, nbytes: int, loops: int) -> float:
        if getattr(self, "nbytes", None) != nbytes:
            self.nbytes = nbytes
            self.prepare(nbytes)
        action = getattr(self, name)
        WORLD.Barrier()
        start = time.perf_counter()
        for _ in range(loops):
            action()
        return time.perf_counter() - start

    def lasting(self, seconds: float) -> None:
        """Set the duration of the work beside a collective."""
        self.seconds = seconds
        self.count_passes(seconds)

    def checksum(self, name: str, nbytes: int) -> int:
        """The checksum of the sum of other numbers, which must be equal for all contenders."""
        self.nbytes = None
        self.prepare(nbytes)
        numbers = (np.arange(nbytes // 4) % 1000 + WORLD.rank).astype(np.float32)
        if name == "bare":
            self.host[:] = numbers
            self.bare()
            found = self.host
        elif name == "torch_gloo":
            self.tensor = self.torch.from_numpy(numbers)
            self.torch_gloo()
            found = self.tensor.numpy()
        else:
            self.array = cs.xp.asarray(numbers, device="cpu")
            getattr(self, name)()
            found = self.array.numpy()
        return zlib.crc32(found.tobytes())


def main() -> None:
    address = sys.argv[1]
    rank = Rank(Path(address).parent)
    with Client(address, "AF_UNIX") as line:
        line.send(WORLD.rank)
        while True:
            try:
                name, *arguments = line.recv()
            except EOFError:
                return
            try:
                line.send(getattr(rank, name)(*arguments))
            except ImportError as error:
                line.send(error)


main()
