"""Makes the tables: one run's JSON in, ratios to the baseline out, as Markdown.

A table holds one run and never two. Numbers of two runs differ by what else the machine was
doing, so two files give two tables, one below the other.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

USAGE = "usage: python bench/compare.py RESULT.json [RESULT.json ...]"


def main(arguments: list[str]) -> int:
    """Print a table for each result file."""
    if not arguments or "-h" in arguments or "--help" in arguments:
        print(f"{USAGE}\n\n{__doc__}")
        return 0 if arguments else 2
    for name in arguments:
        try:
            report = json.loads(Path(name).read_text(encoding="utf-8"))
            text = table(report)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"{name}: not a bench result: {type(error).__name__}: {error}", file=sys.stderr)
            return 2
        print(text, end="\n\n")
    return 0


def table(report: dict) -> str:
    """The machine line, then a row per case and contender, the baseline first."""
    lines = [
        f"**{report['program']}** {machine_line(report)}",
        "",
        "| case | contender | ratio (middle half) | over the baseline | median per op |",
        "|---|---|---:|---:|---:|",
    ]
    for case in report["cases"]:
        contenders = case["contenders"]
        names = sorted(contenders, key=lambda name: name != case["baseline"])
        for name in names:
            lines.append(row(case, name, contenders[name]))
    sums = ", ".join(f"{case['id']} {case['checksum']:#x}" for case in report["cases"])
    return "\n".join([*lines, "", f"Checksums, equal for all contenders: {sums}."])


def machine_line(report: dict) -> str:
    """What the numbers were taken on, in one line."""
    parts = [
        f"at {report['commit'] or 'no commit'}",
        f"{report['rounds']} rounds",
        f"{report['cpu']}, {report['cores']} cores, load {report['load_average']}",
        f"Python {report['python']}",
        f"cuda-bindings {report['cuda_bindings']}",
        f"llvmlite {report['llvmlite']}",
        f"numpy {report['numpy']}",
        *([f"device {report['device']}"] if report["device"] else []),
        report["date"],
        *(["SMALL SIZES, measures nothing"] if report["small"] else []),
    ]
    return "; ".join(parts)


def row(case: dict, name: str, result: dict) -> str:
    """One contender's line; the baseline has no ratio to itself."""
    cost = f"{nanoseconds(result['ns']['median'])} / {case['unit']}"
    if name == case["baseline"]:
        return f"| {case['id']} | {name} | 1 | | {cost} |"
    ratio, over = result["ratio"], result["overhead_ns"]
    return (
        f"| | {name} | {short(ratio['median'])} ({short(ratio['q1'])} to {short(ratio['q3'])}) "
        f"| {'+' if over['median'] >= 0 else '-'}{nanoseconds(abs(over['median']))} | {cost} |"
    )


def short(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def nanoseconds(value: float) -> str:
    """A duration in the unit a person would say it in."""
    return f"{value:.0f} ns" if value < 1000 else f"{short(value / 1000)} us"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
