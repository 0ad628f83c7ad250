"""Everything that a GPU must show, in one command, for whoever has one for ten minutes.

    PYTHONPATH=. python bench/on_gpu.py --json out/h200.json
    PYTHONPATH=. python bench/on_gpu.py --json out/more.json --resume out/h200.json
    PYTHONPATH=. python bench/on_gpu.py --json out/dry.json --dry-run       without a GPU

It works through parts, most valuable first:

    figures    host times of the driver's calls, idle times of the GPU, overlap of kernels
    tests      the tests, a file a process, and ptx/isa through the driver
    peers      benches beside other libraries
    programs   the demo, the experiments, training, NCCL with one rank
    random     random programs, and programs whose device fails

Each part has a share of the time, and what it leaves goes to those behind it. Every task is a
process with a deadline. FILE is written after each of them, so a machine that is taken away loses
what runs at that moment. Ctrl-C ends the processes, keeps FILE and prints the table so far.
Nothing is written outside of FILE's folder, and nothing is asked of a network.

Exit status: 0 if nothing failed, 1 if something did, 2 for wrong options or without a GPU, 130
after Ctrl-C. `python bench/compare.py --tables FILE` prints the table and all figures again.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Not even bytecode is written beside the source.
    sys.dont_write_bytecode = True

import checkout  # noqa: F401

# isort: split
import argparse
import json
import os
import shutil
import signal
import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.hardware import device, reading
from bench.hardware.parts import PARTS, missing
from bench.hardware.running import Setting, no_core_files, run_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.hardware.parts import Part
    from bench.hardware.reading import Outcome
    from bench.hardware.running import Task

INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended
# A dry run may share its processors, and its deadlines are only there for what hangs.
DRY_PATIENCE = 10.0


class Run:
    """A run under way: what it has found so far, and the file that keeps it."""

    def __init__(self, path: Path, head: dict[str, Any], earlier: dict[str, Any]) -> None:
        self._path = path
        self._head = head
        self._began = time.monotonic()
        self.parts: list[dict[str, Any]] = []
        self._reports: dict[str, dict[str, Any]] = {}
        # The tasks that passed in a run of the same source, by name, and their reports.
        self._earlier = earlier

    def earlier(self, task: Task) -> Outcome | None:
        """The outcome of a task that an earlier run has passed."""
        found = self._earlier["tasks"].get(task.name)
        if found is not None and task.name in self._earlier["reports"]:
            self._reports[task.name] = self._earlier["reports"][task.name]
        return found

    def hear(self, part: dict[str, Any], found: Outcome) -> None:
        """Take an outcome in, and write the file."""
        report = found.pop("report", None)
        if report is not None:
            self._reports[found["task"]] = report | {"task": found["task"]}
        part["tasks"].append(found)
        if found["state"] == reading.FAILED:
            self.say(f"FAILED {found['task']}: {found['why']}")
        self.write()

    def say(self, text: str) -> None:
        seconds = int(time.monotonic() - self._began)
        print(f"[{seconds // 60}:{seconds % 60:02}] {text}", flush=True)

    def write(self) -> None:
        """Write the file: a reader finds this state or the last one, never half of one."""
        told = {**self._head, "parts": self.parts, "reports": list(self._reports.values())}
        new = new_name(self._path)
        with new.open("w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)

    def has_failed(self) -> bool:
        outcomes = (each for part in self.parts for each in part["tasks"])
        return any(each["state"] == reading.FAILED for each in outcomes)


def new_name(path: Path) -> Path:
    """The file beside FILE that becomes FILE once it is whole."""
    return path.with_name(f".{path.name}.new")


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    options = parse(arguments, parts)
    try:
        earlier = passed_in(options.resume)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"on_gpu: {options.resume}: not a run of on_gpu: {error}", file=sys.stderr)
        return 2
    options.json.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="gpu-", dir=options.json.parent.resolve()))
    no_core_files()
    patience = DRY_PATIENCE if options.dry_run else 1.0
    setting = Setting(scratch, options.dry_run, 1, patience)
    try:
        with ended_by_signals():
            return run_parts(options, setting, parts, earlier)
    except KeyboardInterrupt:
        print("on_gpu: interrupted before the first part", file=sys.stderr)
        return INTERRUPTED
    finally:
        setting.end_all()
        new_name(options.json).unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def run_parts(
    options: argparse.Namespace,
    setting: Setting,
    parts: Sequence[Part],
    earlier: dict[str, Any],
) -> int:
    try:
        found = device.ask(setting)
    except device.NoDevice as why:
        print(
            f"on_gpu: no GPU can be used: {why}\n"
            "On a machine without one, --dry-run runs every part at its smallest size.",
            file=sys.stderr,
        )
        return 2
    setting = replace(setting, processes=device.processes(found))
    facts = device.facts()
    head = {
        "gpu": device.words(found),
        **facts,
        "dry_run": setting.is_dry,
        "minutes": options.minutes,
        "processes": setting.processes,
    }
    if earlier["source"] not in (None, facts["source"]):
        print(f"{options.resume} is of another source ({earlier['source']}): all tasks run")
        earlier = passed_in(None)
    run = Run(options.json, head, earlier)
    run.say(f"{head['gpu']}; source {facts['source']}; {setting.processes} processes")
    ends = time.monotonic() + options.minutes * 60
    chosen = [part for part in parts if not options.only or part.name in options.only]
    is_interrupted = False
    try:
        for at, part in enumerate(chosen):
            run_part(run, part, setting, ends_of(part, chosen[at:], ends))
    except KeyboardInterrupt:
        is_interrupted = True
    # From here on nothing is under way, and what was found is told and kept.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run.write()
    print(f"\n{head['gpu']}\n\n{reading.table(run.parts)}", flush=True)
    if is_interrupted:
        print(f"\ninterrupted; {options.json} has what is in the table", flush=True)
        return INTERRUPTED
    return int(run.has_failed())


def ends_of(part: Part, left: Sequence[Part], ends: float) -> float:
    """When a part must be over: it has its share of the time that is left."""
    now = time.monotonic()
    share = part.share / sum(each.share for each in left)
    seconds = max(0.0, ends - now) * share
    return now + min(seconds, part.most_s or seconds)


def run_part(run: Run, part: Part, setting: Setting, ends: float) -> None:
    """Run the tasks of a part that no earlier run has, and whose modules are there."""
    began = time.monotonic()
    entry: dict[str, Any] = {"name": part.name, "is_over": False, "seconds": 0.0, "tasks": []}
    run.parts.append(entry)
    tasks = tasks_of(run, part, setting, entry)
    run.say(f"{part.name}: {len(tasks)} tasks, at most {ends - began:.0f} s")
    waiting = []
    for task in tasks:
        lacking = missing(task.needs)
        passed = run.earlier(task)
        if passed is not None:
            entry["tasks"].append(passed)
        elif lacking:
            entry["tasks"].append(reading.left_out(task.name, f"needs {', '.join(lacking)}"))
        else:
            waiting.append(task)
    numbers = 1000 * len(run.parts)
    try:
        run_all(
            waiting,
            setting,
            ends=ends,
            first_number=numbers,
            told=lambda found: run.hear(entry, found),
        )
        entry["is_over"] = True
    finally:
        entry["seconds"] = round(time.monotonic() - began, 1)
    run.write()
    states = [each["state"] for each in entry["tasks"]]
    told = ", ".join(
        f"{states.count(state)} {state}"
        for state in (reading.PASSED, reading.FAILED, reading.LEFT_OUT)
        if state in states
    )
    run.say(f"{part.name}: {told or 'nothing to do'}, {entry['seconds']:.0f} s")


def tasks_of(run: Run, part: Part, setting: Setting, entry: dict[str, Any]) -> Sequence[Task]:
    """The tasks of a part. What is wrong with one part does not cost the parts behind it."""
    try:
        return part.tasks(setting)
    except Exception as error:
        why = f"its tasks are not known: {type(error).__name__}: {error}"
        found = reading.blank(part.name) | {"state": reading.FAILED, "failed": 1, "why": why}
        run.hear(entry, found | {"tail": traceback.format_exc().splitlines(), "repeat": ""})
        return []


def passed_in(path: Path | None) -> dict[str, Any]:
    """The tasks that passed in a run, and their reports, by name."""
    if path is None:
        return {"source": None, "tasks": {}, "reports": {}}
    kept = json.loads(path.read_text(encoding="utf-8"))
    outcomes = [each for part in kept["parts"] for each in part["tasks"]]
    return {
        "source": kept["source"],
        "tasks": {each["task"]: each for each in outcomes if each["state"] == reading.PASSED},
        "reports": {each["task"]: each for each in kept["reports"]},
    }


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A machine that is taken away says so by SIGTERM or SIGHUP: the same as Ctrl-C."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def parse(arguments: Sequence[str] | None, parts: Sequence[Part]) -> argparse.Namespace:
    names = [part.name for part in parts]
    parser = argparse.ArgumentParser(
        prog="on_gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes",
        type=positive,
        default=10.0,
        metavar="N",
        help="for the whole run (default: %(default)g)",
    )
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="PART", help=f"these parts: {', '.join(names)}"
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="leave out what passed in the run of FILE, if it is of the same source",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="every part at its smallest size on the software GPU, which measures nothing",
    )
    parser.add_argument(
        "--json",
        type=Path,
        required=True,
        metavar="FILE",
        help="what was found; its folder is the output folder",
    )
    return parser.parse_args(arguments)


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is no number of minutes")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
