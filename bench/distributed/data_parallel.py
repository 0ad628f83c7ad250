"""A step of DataParallel beside its compute alone and its communication alone, on 2 ranks.

    python -m cudasync launch -n 2 bench/distributed/data_parallel.py \\
        [--small] [--rounds N] [--json FILE]

Each layer of the backward pass computes a gradient that is one bucket. Three things are timed in
turn, from a barrier to the end of the slower rank: `compute`, the layers without DataParallel;
`communication`, DataParallel with existing gradients; and `step`, both. The time of a step beyond
the larger of the two was not hidden. The compute is made as long as the communication, where
overlap is hardest. The last bucket cannot be hidden: one part of as many as there are layers.

`device` is compute that no processor of the host takes part in: a sleep, as a GPU's kernel is to
the host. `host` is NumPy's on the CPU: there the ranks, each with a thread that computes and one
that sends, share the processors, and `processors` in the report says how many there are.

The must is for `device`: a step is at most 1.1 times the larger one.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import json
import statistics
import time

import numpy as np

import cudasync as cs
from bench.harness import machine
from cudasync.array.host.memory import view_of

AT_MOST = 1.1
KINDS = ("device", "host")
PARTS = ("compute", "communication", "step")


class Backward:
    """Layers whose gradients are computed in turn, and added up over all ranks."""

    def __init__(self, comm: cs.distributed.Communicator, layers: int, nbytes: int) -> None:
        self.comm = comm
        weights = [cs.xp.zeros((nbytes // 4,), device="cpu") for _ in range(layers)]
        self.model = cs.parallel.DataParallel(
            weights, comm, op="sum", bucket_bytes=nbytes, broadcast=False
        )
        self.names = list(reversed(range(layers)))
        # A layer's backward needs that of the layer before, so this variable orders them.
        self.order = cs.Var("backward")
        self.left, self.right = (np.ones((256, 256), np.float32) for _ in range(2))
        self.seconds = 0.0
        for name in self.names:
            view_of(self.model.gradient(name))[...] = 0

    def run(self, kind: str, part: str) -> None:
        """Push a step or a part of one, and wait for its end."""
        engine = cs.engine()
        for name in self.names:
            if part != "communication":
                gradient = self.model.gradient(name)
                engine.push(lambda: self.compute(kind), writes=[self.order, gradient], name="layer")
            if part != "compute":
                self.model.ready(name)
        if part != "compute":
            self.model.finish()
            for work in self.model.works:
                work.wait()
        self.order.wait()

    def compute(self, kind: str) -> None:
        """Take the time of one layer's compute. The gradient stays unchanged."""
        if kind == "device":
            time.sleep(self.seconds)
            return
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            self.left @ self.right

    def time(self, kind: str, part: str) -> float:
        """The seconds of the slower rank."""
        self.comm.barrier()
        begin = time.perf_counter()
        self.run(kind, part)
        took = cs.xp.asarray(np.array([time.perf_counter() - begin]), device="cpu")
        self.comm.all_reduce(took, op="max")
        return float(took[0])


def measure(backward: Backward, rounds: int) -> dict[str, dict[str, list[float]]]:
    """The seconds of each round by kind and part. The parts take turns in a round."""
    for part in PARTS:
        backward.time("device", part)
    alone = statistics.median(backward.time("device", "communication") for _ in range(5))
    backward.seconds = alone / len(backward.names)
    found = {kind: {part: [] for part in PARTS} for kind in KINDS}
    for _ in range(rounds):
        for kind, parts in found.items():
            for part, times in parts.items():
                times.append(backward.time(kind, part))
    return found


def judged(parts: dict[str, list[float]]) -> dict[str, float]:
    """Medians in ms, and the median over rounds of the step's ratio.

    The ratio is the step over the larger of compute and communication in the same round.
    """
    rows = list(zip(*(parts[part] for part in PARTS), strict=True))
    ratios = [step / max(compute, communication) for compute, communication, step in rows]
    hidden = [
        (compute + communication - step) / min(compute, communication)
        for compute, communication, step in rows
    ]
    return {
        **{f"{part}_ms": statistics.median(parts[part]) * 1e3 for part in PARTS},
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
        "hidden": statistics.median(hidden),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--small", action="store_true", help="tiny sizes: a test run that measures nothing"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--kib", type=int, help="KiB of a layer's gradient")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    layers = options.layers or (3 if options.small else 24)
    nbytes = (options.kib or (16 if options.small else 4096)) << 10
    rounds = options.rounds or (2 if options.small else 15)
    comm = cs.distributed.init("mpi", devices=["cpu"])
    with cs.Engine(workers=2):
        found = measure(Backward(comm, layers, nbytes), rounds)
    if comm.rank:
        return 0
    report = {
        **machine.facts(),
        "small": options.small,
        "ranks": comm.size,
        "layers": layers,
        "bytes": nbytes,
        "rounds": rounds,
        "cases": {kind: judged(parts) for kind, parts in found.items()},
    }
    ratio = report["cases"]["device"]["ratio"]
    report["met"] = ratio <= AT_MOST
    for kind, case in report["cases"].items():
        print(
            f"{kind}: compute {case['compute_ms']:.1f} ms, communication "
            f"{case['communication_ms']:.1f} ms, step {case['step_ms']:.1f} ms: "
            f"{case['ratio']:.2f} times the larger (least {case['least_ratio']:.2f}), "
            f"{case['hidden']:.0%} of the smaller hidden"
        )
    print(f"{report['cores']} processors, load {report['load_average']}")
    print(f"must: device at most {AT_MOST}: {'met' if report['met'] else 'NOT MET'}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
