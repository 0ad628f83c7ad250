"""Launches on a device, issued and finished, beside other ways to do so from Python.

Three shapes of a burst of small kernels. The time is that of a run, from the first call until all
work is done. Peers that are not installed, or that find no usable device, are left out, and the
table gives the reason. This bench is for a real GPU: times on the software GPU say nothing about
the cost of any peer.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import time
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

import cudasync as cs
from bench.harness import command, machine
from bench.harness.measurement import Case, Contender
from bench.launches import bursts
from bench.launches.gpu_peers import PEERS, OneStream

if TYPE_CHECKING:
    import numpy as np

    from bench.harness.measurement import Session
    from bench.launches.bursts import Burst
    from bench.launches.gpu_peers import Peer


def build(session: Session) -> None:
    """Add a case for each shape, with all available peers."""
    launches = session.parameter("launches", small=6, large=64)
    blocks = session.parameter("blocks", small=1, large=4)
    most_runs = session.parameter("most_runs", small=1, large=50)
    _, kernel = bursts.prepared(session)
    for shape, make in bursts.SHAPES.items():
        burst = make(launches)
        first = bursts.first_values(burst, blocks * bursts.BLOCK)
        found = [contend(session, kind, kernel, burst, first) for kind in PEERS]
        session.add(
            Case(
                name=f"bench_peers_gpu.{shape}",
                contenders=[contender for contender in found if contender is not None],
                baseline=OneStream.name,
                operations=launches,
                unit="launch",
                most_loops=most_runs,
            )
        )


def contend(
    session: Session, kind: type[Peer], kernel: cs.Kernel, burst: Burst, first: np.ndarray
) -> Contender | None:
    """A peer as a contender; None, and a line in the report, if it cannot take part."""
    if kind.name in session.absent:
        return None
    if kind.needs_hardware and kernel.device.is_software:
        session.absent[kind.name] = "needs a real GPU"
        return None
    with ExitStack() as made, warnings.catch_warnings():
        # A library's advice on better use does not belong to the result.
        warnings.simplefilter("ignore")
        try:
            peer = kind(made, kernel, burst, first)
            run(peer)
        except Exception as error:
            # Any error of an unknown library must not stop the others.
            session.absent[kind.name] = f"{type(error).__name__}: {error}".splitlines()[0]
            return None
        session.closing.push(made.pop_all())
    if kind.package is not None:
        session.versions[kind.package] = machine.installed(kind.package) or "of unknown version"

    def bench(loops: int) -> float:
        start = time.perf_counter()
        for _ in range(loops):
            run(peer)
        return time.perf_counter() - start

    def checksum() -> int:
        peer.reset()
        run(peer)
        run(peer)
        return bursts.checksum_of(peer.rows())

    return Contender(kind.name, bench, checksum)


def run(peer: Peer) -> None:
    for call in peer.calls:
        call()
    peer.wait()


if __name__ == "__main__":
    raise SystemExit(command.main("bench_peers_gpu", __doc__, build))
