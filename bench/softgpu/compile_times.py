"""Times to compile kernels of any size, from PTX to callable code.

    python bench/softgpu/compile_times.py                all families, 500 to 35 000 instructions
    python bench/softgpu/compile_times.py --family loops --size 500 2000
    python bench/softgpu/compile_times.py --json FILE    keep the measurements in FILE
    python bench/softgpu/compile_times.py --plot FILE    draw the measurements (matplotlib)
    python bench/softgpu/compile_times.py --table FILE   the table of a kept FILE; no run

The file is written after each kernel, and keeps its entries of other kernels; each entry names its
commit. Times are processor seconds of this process and its helpers. Exit status: 1 if a kernel
takes more than the limit of its size.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout's own `bench` and cudasync are imported, from whatever folder this is started.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import json

from bench.harness import machine
from bench.softgpu.compile_phases import PHASES, compile_in_phases
from bench.softgpu.large_kernels import FAMILIES, large

SIZES = (500, 2000, 5000, 12_000, 35_000)
# The limits in processor seconds, by the number of instructions.
LIMITS = {5000: 5.0, 35_000: 40.0}


def main() -> int:
    options = _parser().parse_args()
    if options.table:
        report = json.loads(options.table.read_text(encoding="utf-8"))
    else:
        report = {"program": "compile_times", **machine.facts(), "kernels": []}
        for family in options.family:
            for size in options.size:
                report["kernels"].append(measured(family, size, report["commit"]))
                print(row(report["kernels"][-1]), flush=True)
                if options.json:
                    keep(report, options.json)
    print(table(report))
    if options.plot:
        plot(report, options.plot)
    return 1 if any(is_over(each) for each in report["kernels"]) else 0


def keep(report: dict, path: Path) -> None:
    """Write a report, with the kernels that the file has and the report has not."""
    kernels = {_key(each): each for each in report["kernels"]}
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))["kernels"]
        kernels = {_key(each): each for each in before} | kernels
    order = sorted(
        kernels.values(), key=lambda each: (list(FAMILIES).index(each["family"]), each["size"])
    )
    path.write_text(json.dumps({**report, "kernels": order}, indent=1) + "\n", encoding="utf-8")


def _key(kernel: dict) -> tuple[str, int]:
    return kernel["family"], kernel["size"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--size", nargs="+", type=int, default=list(SIZES))
    for name in ("json", "plot", "table"):
        parser.add_argument(f"--{name}", type=Path)
    return parser


def measured(family: str, size: int, commit: str | None) -> dict:
    """The result of compiling one kernel, as it is kept."""
    found = compile_in_phases(large(family, size))
    return {
        "family": family,
        "size": size,
        "commit": commit,
        "instructions": found.instructions,
        "lines": found.lines,
        "modules": found.modules,
        "seconds": {phase: round(each, 3) for phase, each in found.seconds.items()},
    }


def total(kernel: dict) -> float:
    return sum(kernel["seconds"].values())


def is_over(kernel: dict) -> bool:
    """True if a kernel takes longer than its size allows."""
    return total(kernel) > LIMITS.get(kernel["size"], float("inf"))


def table(report: dict) -> str:
    """The results, one line for each kernel."""
    head = ["family", "instructions", "lines of text", *PHASES, "all", "ms each"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *map(row, report["kernels"])])


def row(kernel: dict) -> str:
    parts = [f"{kernel['seconds'][phase]:.2f}" for phase in PHASES]
    every = total(kernel)
    each = f"{1000 * every / kernel['instructions']:.2f}"
    sizes = [kernel["family"], str(kernel["instructions"]), str(kernel["lines"])]
    return "| " + " | ".join([*sizes, *parts, f"{every:.2f}", each]) + " |"


def plot(report: dict, path: Path) -> None:
    """Seconds over instructions, both in powers of ten, with the limits and a slope of one."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for family, marker in zip(FAMILIES, "osD^v<>", strict=True):
        own = [each for each in report["kernels"] if each["family"] == family]
        if own:
            axes.loglog(
                *zip(*((each["instructions"], total(each)) for each in own), strict=True),
                marker + "-",
                label=family,
                markersize=5,
            )
    sizes = [min(SIZES), max(SIZES)]
    axes.loglog(sizes, [size / 1000 for size in sizes], "--", color="grey", label="1 ms each")
    axes.loglog(list(LIMITS), list(LIMITS.values()), "kx", markersize=10, label="limit")
    axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
    axes.set_xticks([], minor=True)
    seconds = (0.2, 0.5, 1, 2, 5, 10, 20, 40)
    axes.set_yticks(seconds, [f"{each:g}" for each in seconds])
    axes.set_yticks([], minor=True)
    axes.set_xlabel("instructions")
    axes.set_ylabel("processor seconds")
    axes.set_title("From PTX to machine code")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
