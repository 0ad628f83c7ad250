"""How long kernels of any size take to compile, from PTX to code that can be called.

    python bench/softgpu/compile_times.py                all families, 500 to 35 000 instructions
    python bench/softgpu/compile_times.py --family loops --size 500 2000
    python bench/softgpu/compile_times.py --json FILE    and keep what was measured
    python bench/softgpu/compile_times.py --plot FILE    and draw it (matplotlib)
    python bench/softgpu/compile_times.py --table FILE   what such a file says; nothing is run

Times are processor seconds of this process, the helpers' time within. Exit status: 1 if a kernel
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
                report["kernels"].append(measured(family, size))
                print(row(report["kernels"][-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(table(report))
    if options.plot:
        plot(report, options.plot)
    return 1 if any(is_over(each) for each in report["kernels"]) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--size", nargs="+", type=int, default=list(SIZES))
    for name in ("json", "plot", "table"):
        parser.add_argument(f"--{name}", type=Path)
    return parser


def measured(family: str, size: int) -> dict:
    """The result of compiling one kernel, as it is kept."""
    found = compile_in_phases(large(family, size))
    return {
        "family": family,
        "size": size,
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
    """Seconds over instructions, both in powers of ten, with the limits."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    for family in dict.fromkeys(each["family"] for each in report["kernels"]):
        own = [each for each in report["kernels"] if each["family"] == family]
        axes.loglog(
            [each["instructions"] for each in own],
            [total(each) for each in own],
            "o-",
            label=family,
        )
    axes.loglog(list(LIMITS), list(LIMITS.values()), "kx", label="limit")
    axes.set_xlabel("instructions")
    axes.set_ylabel("processor seconds")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    sys.exit(main())
