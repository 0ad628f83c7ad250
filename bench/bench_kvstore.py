"""Key-value stores: a push and a pull, beside the same exchange written by hand.

`server.SIZE`: NumPy's update and a copy, beside servers in this process: the cost of asking them.
`mpi.SIZE`: a worker and a server, each a rank, exchange a gradient and the updated value: by
mpi4py, by PyTorch's gloo, and by a "dist_async" store. `sum.SIZE`: a "dist_sync" store beside their
all-reduce. `ray.SIZE`: an actor with `push` and `pull`, and the store on actors.

Without MPI or Ray, their cases are left out, and the table says why.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import tempfile
import zlib
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.distributed.store_processes import Job, lacking_mpi, lacking_ray
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender, repeat
from cudasync import xp

if TYPE_CHECKING:
    from bench.harness.measurement import Session

KIB, MIB = 1 << 10, 1 << 20
SIZES = {
    "4B": 4,
    "4KiB": 4 * KIB,
    "64KiB": 64 * KIB,
    "1MiB": MIB,
    "8MiB": 8 * MIB,
    "64MiB": 64 * MIB,
}
OURS, AT_ONCE, KEPT = "cudasync", "cudasync, pushpull", "cudasync, with a folder"
MPI, GLOO, ACTOR = "mpi4py", "torch, gloo", "ray actor"
# The limits of push and pull, relative to the bare exchange.
MOST = {"1MiB": 2.0, "64MiB": 1.2}
MOST_RAY = 1.2


def build(session: Session) -> None:
    """Add the cases of each transport, at each size."""
    most = session.parameter("most_bytes", small=64 * KIB, large=64 * MIB)
    sizes = {name: nbytes for name, nbytes in SIZES.items() if nbytes <= most}
    folder = session.closing.enter_context(tempfile.TemporaryDirectory(prefix="cudasync-bench-"))
    for name, nbytes in sizes.items():
        session.add(in_process(name, nbytes, f"{folder}/{name}"))
    if why := lacking_mpi():
        session.absent[MPI] = why
    else:
        between_ranks(session, sizes)
    if why := lacking_ray():
        session.absent[ACTOR] = why
    elif session.wants("bench_kvstore.ray"):
        on_actors(session, sizes)


def in_process(name: str, nbytes: int, folder: str) -> Case:
    """The update and a copy in this thread; through servers; and through servers with a journal."""
    gradient = (np.arange(nbytes // 4) % 1000).astype(np.float32)
    scratch, value, out = (np.zeros(nbytes // 4, np.float32) for _ in range(3))
    given, pulled = xp.asarray(gradient, device="cpu"), xp.zeros((nbytes // 4,), device="cpu")

    def store(kept: str | None) -> cs.kvstore.KVStore:
        servers = cs.kvstore.InProcessServers(1, kept)
        made = cs.kvstore.create("dist_async", transport=servers, big_elements=1 << 40)
        made.set_optimizer("sgd", learning_rate=0.5)
        made.init("w", xp.zeros((nbytes // 4,), device="cpu"))
        return made

    def by_hand() -> None:
        np.multiply(gradient, np.float32(0.5), out=scratch)
        np.subtract(value, scratch, out=value)
        np.copyto(out, value)

    def sum_by_hand() -> int:
        value[:] = 0
        by_hand()
        return zlib.crc32(out.tobytes())

    def contender(called: str, kept: str | None) -> Contender:
        used = store(kept)

        def ours() -> None:
            used.push("w", given)
            used.pull("w", pulled)
            pulled.wait()

        def checksum() -> int:
            ours()
            return zlib.crc32(pulled.numpy().tobytes())

        return Contender(called, repeat(ours), checksum)

    return Case(
        name=f"bench_kvstore.server.{name}",
        contenders=[
            Contender("NumPy", repeat(by_hand), sum_by_hand),
            contender(OURS, None),
            contender(KEPT, folder),
        ],
        baseline="NumPy",
        unit="push and pull",
        most_loops=1 << 10,
    )


def between_ranks(session: Session, sizes: dict[str, int]) -> None:
    """Two jobs of two ranks. One rank of each is a server, or does a server's work by hand."""
    if not any(
        session.wants(f"bench_kvstore.{kind}.{name}") for kind in ("mpi", "sum") for name in sizes
    ):
        return
    store, bare = Job(session.closing, "store", 2, 1), Job(session.closing, "bare", 2, 2)
    is_gloo = True
    try:
        session.versions["torch"] = str(bare.ask("take_part", "torch"))
    except ImportError as error:
        session.absent[GLOO], is_gloo = str(error), False
    for name, nbytes in sizes.items():
        ways = {MPI: (bare, "bare"), OURS: (store, "ours"), AT_ONCE: (store, "ours_at_once")}
        sums = {MPI: (bare, "bare_sum"), OURS: (bare, "ours_sum")}
        ahead = []
        if is_gloo:
            ways[GLOO], sums[GLOO] = (bare, "torch_gloo"), (bare, "torch_sum")
            ahead = [Goal(OURS, GLOO, 1.0)]
        limits = [Goal(OURS, MPI, MOST[name])] if name in MOST else []
        session.add(case(f"mpi.{name}", nbytes, ways, MPI, [*limits, *ahead]))
        wishes = [Goal(each.of, each.over, each.at_most, word="goal") for each in [*limits, *ahead]]
        session.add(case(f"sum.{name}", nbytes, sums, MPI, wishes))


def on_actors(session: Session, sizes: dict[str, int]) -> None:
    """One process with its own actor, and with a store whose server is an actor."""
    job = Job(session.closing, "ray", 1, 1)
    session.versions["ray"] = str(job.ask("take_part", "ray"))
    for name, nbytes in sizes.items():
        ways = {ACTOR: (job, "bare"), OURS: (job, "ours"), AT_ONCE: (job, "ours_at_once")}
        session.add(case(f"ray.{name}", nbytes, ways, ACTOR, [Goal(OURS, ACTOR, MOST_RAY)]))


def case(
    name: str, nbytes: int, ways: dict[str, tuple[Job, str]], baseline: str, goals: list[Goal]
) -> Case:
    return Case(
        name=f"bench_kvstore.{name}",
        contenders=[contend(each, *way, nbytes) for each, way in ways.items()],
        baseline=baseline,
        unit="push and pull",
        most_loops=1 << 8,
        goals=goals,
    )


def contend(name: str, job: Job, method: str, nbytes: int) -> Contender:
    def bench(loops: int) -> float:
        return float(str(job.ask("run", method, nbytes, loops)))

    def checksum() -> int:
        return int(str(job.ask("checksum", method, nbytes)))

    return Contender(name, bench, checksum)


if __name__ == "__main__":
    raise SystemExit(command.main("bench_kvstore", __doc__ or "", build))
