"""Runs every bench, keeps the results, and writes the tables.

    python bench/compare.py                     every bench, each in a process of its own
    python bench/compare.py bench_engine        only these benches
    python bench/compare.py --long              with long cases too (ten million pushes)
    python bench/compare.py --tables FILE ...   the tables of kept results; no run
    python bench/compare.py --readme            the README's tables, from bench/results as it is

Results go to bench/results. All results there make the tables between the marks in bench/README.md;
a run without a GIL stands beside the run with the usual Python. A run with --small is shown and not
kept: its sizes measure nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checkout import ROOT

from bench.hardware import reading
from bench.harness.tables import amount, goal_words, musts, plain, table

BENCH = ROOT / "bench"
RESULTS = BENCH / "results"
README = BENCH / "README.md"
BEGIN, END = "<!-- tables, by compare.py -->\n", "<!-- end of tables -->\n"

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended

# In the order of the README, with the options that --long adds.
PROGRAMS: dict[str, list[str]] = {
    "bench_engine": [],
    "bench_matmul": [],
    "bench_scale": ["--set", "most_pushes=10000000"],
    "bench_pushers": [],
    "bench_cliffs": [],
    "bench_free_threading": [],
    "bench_launch": [],
    "bench_batch": [],
    "bench_replay": [],
    "bench_graph": [],
    "bench_profile": [],
    "bench_dags": [],
    "bench_overlap": [],
    "bench_arrays": [],
    "bench_kvstore": [],
    "bench_data": [],
    "bench_driver": [],
    "bench_softgpu": [],
    "bench_checks": [],
    "bench_peers_gpu": [],
    "bench_collectives": [],
}


def main(arguments: list[str]) -> int:
    """The exit status is 0, 1 where a bench failed, 2 for wrong arguments."""
    options = parse(arguments)
    if options.tables:
        return show(options.words)
    if options.readme:
        write_readme(README, kept())
        return 0
    unknown = set(options.words) - set(PROGRAMS)
    if unknown:
        print(f"no bench {', '.join(sorted(unknown))}; there are: {', '.join(PROGRAMS)}")
        return 2
    failed, missed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for program in options.words or PROGRAMS:
            path = Path(folder) / f"{program}.json"
            report = run(program, path, small=options.small, long=options.long)
            if report is None:
                failed.append(program)
                continue
            missed += unmet(report)
            if not options.small:
                RESULTS.mkdir(exist_ok=True)
                (RESULTS / kept_name(report)).write_text(path.read_text(encoding="utf-8"), "utf-8")
    if not options.small:
        write_readme(README, kept())
        for line in missed:
            print(f"NOT MET: {line}")
    for program in failed:
        print(f"FAILED: {program}")
    return 1 if failed else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="BENCH or FILE")
    parser.add_argument("--small", action="store_true", help="tiny sizes; no result is kept")
    parser.add_argument("--long", action="store_true", help="long cases too (ten million pushes)")
    parser.add_argument(
        "--tables", action="store_true", help="show the tables of these files; no run"
    )
    parser.add_argument(
        "--readme", action="store_true", help="write the README's tables again; no run"
    )
    return parser.parse_args(arguments)


def run(program: str, result: Path, *, small: bool, long: bool) -> dict | None:
    """Run one bench, and let its table go to stdout. Returns None if it failed."""
    print(f"\n# {program}", flush=True)
    command = [sys.executable, str(BENCH / f"{program}.py"), "--json", str(result)]
    command += ["--small"] if small else []
    command += PROGRAMS[program] if long else []
    start = time.monotonic()
    done = subprocess.run(command, check=False)
    print(f"({time.monotonic() - start:.0f} s)", flush=True)
    if done.returncode or not result.exists():
        return None
    return json.loads(result.read_text(encoding="utf-8"))


def show(names: list[str]) -> int:
    """Print the tables of each result file; of a run on a GPU first what passed and failed."""
    for name in names:
        try:
            read = json.loads(Path(name).read_text(encoding="utf-8"))
            # A day on a GPU is kept as one file of several results.
            texts = [*map(table, read.get("reports", [read]))]
            if "parts" in read:
                texts.insert(0, f"{read['gpu']}, {read['date']}\n\n{reading.table(read['parts'])}")
            text = "\n\n".join(texts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"{name}: not a bench result: {type(error).__name__}: {error}", file=sys.stderr)
            return 2
        print(text, end="\n\n")
    return 0


def kept_name(report: dict) -> str:
    """The file that keeps a result. Results with and without a GIL have different files."""
    return f"{report['program']}{'' if report['gil'] else '.without_gil'}.json"


def kept() -> list[dict]:
    """The kept results, in the order of the programs."""
    paths = RESULTS.glob("bench_*.json")
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    order = list(PROGRAMS)
    return sorted(reports, key=lambda report: (order.index(report["program"]), not report["gil"]))


def write_readme(path: Path, reports: list[dict]) -> None:
    """Put all musts and the tables of these results between the marks; the rest stays."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{path}: no line {END.strip()!r} after a line {BEGIN.strip()!r}")
    shown = "\n".join(f"{text}\n" for text in (musts(reports), *map(table, reports)))
    path.write_text(f"{before}{BEGIN}\n{shown}\n{END}{after}", encoding="utf-8")


def unmet(report: dict) -> list[str]:
    """The promises that this run does not meet, in words."""
    goals = [
        f"{case['id']}: {goal_words(goal)} is {amount(goal['value']['median'], goal['unit'])}, "
        f"{goal['word']} {amount(goal['at_most'], goal['unit'])}"
        for case in report["cases"]
        for goal in case["goals"]
        if not goal["met"]
    ]
    measures = [
        f"{measure['id']} is {plain(measure['value'])} {measure['unit']}, "
        f"must {plain(measure['at_most'])}"
        for measure in report["measures"]
        if not measure["met"]
    ]
    return goals + measures


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        # The interrupted bench has printed a message, and earlier results are kept.
        raise SystemExit(INTERRUPTED) from None
