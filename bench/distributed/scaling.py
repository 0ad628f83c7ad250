"""Data parallel on up to 1024 ranks: a simulation from measurements between two ranks.

    python bench/distributed/scaling.py [--link "TCP"] [--json]        the links kept in this file
    python bench/distributed/scaling.py --latency-us 2 --bandwidth-gb 12 --sum-gb 10  your own link
    python -m cudasync launch -n 2 bench/distributed/scaling.py --measure  the link of two ranks

Three algorithms: the ring and the tree of `cudasync/distributed/steps.py`, and a parameter server
(one, or one for eight ranks). A crossover is the size from which on one algorithm is faster than
another. `scaling_model.py` says what is simulated, and what is not.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from bench.distributed.scaling_model import Link, crossover, ring, server, step, tree

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SIZES = {"64 KiB": 64 << 10, "25 MiB": 25 << 20, "400 MiB": 400 << 20}
# Measured by --measure, 2026-11-26, Open MPI 5 on two shared cores: the least of many.
LINKS = {
    "shared memory": Link(latency_s=0.8e-6, bandwidth=4.5e9, summing=7.4e9),
    "TCP": Link(latency_s=5.6e-6, bandwidth=0.33e9, summing=7.4e9),
}
# A step: bytes of gradients, number of buckets, and seconds of compute.
GRADIENTS, BUCKETS, COMPUTE_S = 100 << 20, 4, (1.0, 0.1)


def algorithms(link: Link, ranks: int) -> dict[str, Callable[[float], float]]:
    """The seconds of each algorithm as a function of the bytes."""
    return {
        "ring": lambda size: ring(link, ranks, size),
        "tree": lambda size: tree(link, ranks, size),
        "1 server": lambda size: server(link, ranks, size),
        "n/8 servers": lambda size: server(link, ranks, size, max(1, ranks // 8)),
    }


def report(link: Link) -> dict[str, object]:
    """Times in ms, crossovers in bytes, and the share of compute in a step, by number of ranks."""
    times: dict[str, object] = {name: {} for name in SIZES}
    crossovers, steps = {}, {}
    for ranks in RANKS:
        known = algorithms(link, ranks)
        for name, size in SIZES.items():
            times[name][ranks] = {each: cost(size) * 1e3 for each, cost in known.items()}
        crossovers[ranks] = {
            f"{one}, {other}": crossover(known[one], known[other])
            for one, other in (
                ("ring", "tree"),
                ("ring", "1 server"),
                ("ring", "n/8 servers"),
                ("tree", "1 server"),
            )
        }
        steps[ranks] = {
            f"{each}, {compute_s:g} s": compute_s / step(known[each], compute_s, GRADIENTS, BUCKETS)
            for compute_s in COMPUTE_S
            for each in ("ring", "tree", "n/8 servers")
        }
    return {"link": asdict(link), "ms": times, "crossovers": crossovers, "compute share": steps}


def as_text(found: dict[str, object]) -> str:
    """The tables."""
    link = found["link"]
    lines = [
        f"latency {link['latency_s'] * 1e6:.1f} us, bandwidth {link['bandwidth'] / 1e9:.2f} GB/s, "
        f"sums {link['summing'] / 1e9:.2f} GB/s"
    ]
    for name, rows in found["ms"].items():
        lines += table(f"all-reduce of {name}, ms", rows, lambda each: f"{each:.3f}")
    lines += table("the first is ahead from", found["crossovers"], in_bytes)
    lines += table("compute / step, 100 MiB", found["compute share"], lambda each: f"{each:.0%}")
    return "\n".join(lines)


def table(title: str, rows: dict[int, dict[str, object]], form: Callable[..., str]) -> list[str]:
    """A table with a line for each number of ranks."""
    heads = list(next(iter(rows.values())))
    lines = ["", f"{title:<26}" + "".join(f"{head:>20}" for head in heads)]
    for ranks, row in rows.items():
        lines.append(
            f"{ranks:>10} ranks".ljust(26) + "".join(f"{form(v):>20}" for v in row.values())
        )
    return lines


def in_bytes(size: float | None) -> str:
    """A size in words."""
    if size is None:
        return "never"
    if size == 0:
        return "any size"
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} B"


def measure() -> Link | None:
    """The link of two ranks, each of which calls this; None on the second.

    The result is half of the least of many round trips, which nothing else disturbed.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.size != 2:
        raise SystemExit("scaling.py --measure is for 2 ranks: python -m cudasync launch -n 2")

    def one_way(size: int, times: int) -> float:
        box, found = np.zeros(size, np.uint8), []
        for _ in range(times):
            world.Barrier()
            begin = time.perf_counter()
            if world.rank == 0:
                world.Send(box, 1)
                world.Recv(box, 1)
            else:
                world.Recv(box, 0)
                world.Send(box, 0)
            found.append((time.perf_counter() - begin) / 2)
        return min(found)

    latency, long = one_way(4, 2000), one_way(16 << 20, 40)
    if world.rank:
        return None
    x, y, adding = np.ones(4 << 20, np.float32), np.ones(4 << 20, np.float32), []
    for _ in range(40):
        begin = time.perf_counter()
        np.add(x, y, out=x)
        adding.append(time.perf_counter() - begin)
    return Link(latency, (16 << 20) / (long - latency), x.nbytes / min(adding))


def chosen(options: argparse.Namespace) -> list[Link] | None:
    """The links that the options select; None on the rank that prints nothing."""
    if options.measure:
        link = measure()
        return None if link is None else [link]
    given = (options.latency_us, options.bandwidth_gb, options.sum_gb)
    if given == (None, None, None):
        return [LINKS[options.link]] if options.link else list(LINKS.values())
    if None in given or min(given) <= 0:
        raise SystemExit("a link of yours has --latency-us, --bandwidth-gb and --sum-gb, above 0")
    return [Link(given[0] * 1e-6, given[1] * 1e9, given[2] * 1e9)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", action="store_true", help="two ranks measure their link")
    parser.add_argument("--link", choices=LINKS)
    for name in ("--latency-us", "--bandwidth-gb", "--sum-gb"):
        parser.add_argument(name, type=float)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(arguments)
    links = chosen(options)
    if links is not None:
        found = [report(link) for link in links]
        print(json.dumps(found, indent=2) if options.json else "\n\n".join(map(as_text, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
