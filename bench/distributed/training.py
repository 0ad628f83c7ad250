"""Time and equality of a training step, in each way of `experiments training`.

    python bench/distributed/training.py [--rounds N] [--hidden N] [--json FILE]

Each round is a process of its own that trains in all ways, one after the other. A way is compared
with one device in the same round. It needs scikit-learn; ways of several processes need MPI.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import json
import statistics
import subprocess

from bench.checkout import ROOT
from bench.harness import machine


def one_round(hidden: int) -> dict[str, object]:
    """The program's report; its complaints go to stderr."""
    command = [sys.executable, "-m", "cudasync", "experiments", "training", "--json"]
    command += ["--size", str(hidden)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)
    return json.loads(done.stdout)["training"]


def merged(rounds: list[dict[str, object]]) -> list[dict[str, object]]:
    """For each way: the median of a step, its ratio, and the largest difference of a loss.

    The ratio is to one device in the same round.
    """
    found = []
    for number, way in enumerate(rounds[0]["ways"]):
        rows = [each["ways"][number] for each in rounds]
        ratios = [
            row["ms_per_step"] / each["ways"][0]["ms_per_step"]
            for row, each in zip(rows, rounds, strict=True)
        ]
        found.append(
            {
                "name": way["name"],
                "ms_per_step": statistics.median(row["ms_per_step"] for row in rows),
                "ratio": statistics.median(ratios),
                "difference": max(row["difference"] for row in rows),
                "is_right": all(row["is_right"] for row in rows),
            }
        )
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    rounds = [one_round(options.hidden) for _ in range(options.rounds)]
    ways = merged(rounds)
    report = {**machine.facts(), "rounds": options.rounds, "hidden": options.hidden, "ways": ways}
    for way in ways:
        print(
            f"{way['name']:<24} {way['ms_per_step']:>8.1f} ms a step, {way['ratio']:.2f} times one "
            f"device; losses off by {way['difference']:.0e}{'' if way['is_right'] else ', WRONG'}"
        )
    for name, why in rounds[0]["left_out"].items():
        print(f"{name:<24} left out: {why}")
    print(f"{report['cores']} processors, load {report['load_average']}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if all(way["is_right"] for way in ways) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
