"""Runs numbered cases in processes of their own kind: a new one behind each that fails or hangs.

A GPU that has failed stays lost until the process ends. So the process that runs the cases ends
with the first failure, and another one goes on behind it. A program of cases is started as

    python -m MODULE [--json FILE] [--only NAME,NAME]

and starts itself again with `--from N`. It says on stdout which case it begins and how it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# Words of a line about a case, behind the mark that no other line begins with.
_MARK = "case> "
_BEGINS, _PASSED, _FAILED, _LEFT_OUT = "begins", "passed", "failed", "left"
# A case says nothing while it runs, and is taken for hung after a time. The first one of a process
# also waits for the imports.
PATIENCE_S, START_S = 20.0, 60.0


class LeftOut(Exception):
    """Raised by a case that this device is not for; the text says why."""


@dataclass
class Counted:
    """The cases by their ends, as a task's result tells them."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def write(self, path: str, **more: object) -> None:
        told = {"passed": self.passed, "failed": self.failed, "left_out": self.left_out, **more}
        Path(path).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def main(
    module: str,
    description: str,
    names: Callable[[argparse.Namespace], Sequence[str]],
    run: Callable[[argparse.Namespace, int], None],
    *,
    options: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    cases_of_a_process: int | None = None,
) -> int:
    """Run all cases, or those that `--only` names; status 1 if one failed.

    `run(options, number)` returns if a case passes, and raises otherwise.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write what passed and failed to FILE")
    parser.add_argument("--only", default="", metavar="NAME,NAME", help="these cases alone")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_S, metavar="S", help="for one case (%(default)s)"
    )
    parser.add_argument("--from", dest="first", type=int, metavar="N", help=argparse.SUPPRESS)
    options(parser)
    chosen = parser.parse_args()
    everything = list(names(chosen))
    wanted = [name for name in chosen.only.split(",") if name] or everything
    if unknown := sorted(set(wanted) - set(everything)):
        parser.error(f"no case {', '.join(unknown)}")
    numbers = [number for number, name in enumerate(everything) if name in set(wanted)]
    if chosen.first is not None:
        behind = [number for number in numbers if number >= chosen.first]
        return _run_here(chosen, everything, behind[:cases_of_a_process], run)
    counted = _run_all(module, everything, numbers, chosen.patience)
    print(f"{len(counted.passed)} passed, {len(counted.failed)} failed")
    for name, why in counted.failed.items():
        print(f"FAILED {name}: {why}")
    if chosen.json:
        counted.write(chosen.json)
    return 1 if counted.failed else 0


def _run_here(
    chosen: argparse.Namespace,
    names: Sequence[str],
    numbers: Sequence[int],
    run: Callable[[argparse.Namespace, int], None],
) -> int:
    for number in numbers:
        _say(_BEGINS, number)
        try:
            run(chosen, number)
        except LeftOut as why:
            _say(_LEFT_OUT, number, str(why))
        except Exception as error:
            # Whatever it is, the device may be lost.
            _say(_FAILED, number, f"{type(error).__name__}: {error}")
            sys.stdout.flush()
            os._exit(1)
        else:
            _say(_PASSED, number)
    return 0


def _say(word: str, number: int, why: str = "") -> None:
    print(f"{_MARK}{word} {number} {' '.join(why.split())[:400]}", flush=True)


def _run_all(
    module: str, names: Sequence[str], numbers: Sequence[int], patience_s: float
) -> Counted:
    counted = Counted()
    left = list(numbers)
    while left:
        over = _process(module, left[0], names, counted, patience_s)
        if not over:
            counted.failed[names[left[0]]] = "its process ended before it began"
            over = {left[0]}
        left = [number for number in left if number not in over]
    return counted


def _process(
    module: str, first: int, names: Sequence[str], counted: Counted, patience_s: float
) -> set[int]:
    """Run cases from `first` on in one process, until one fails; which of them ended."""
    own = [word for word in sys.argv[1:] if word != "--json"]
    if "--json" in sys.argv:
        own.remove(sys.argv[sys.argv.index("--json") + 1])
    process = subprocess.Popen(
        [sys.executable, "-m", module, *own, "--from", str(first)],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    over: set[int] = set()
    begun: int | None = None
    is_hung = False
    try:
        for line in _lines(process, patience_s):
            if line is None:
                is_hung = True
                break
            if not line.startswith(_MARK):
                print(line)
                continue
            word, number, *why = line.removeprefix(_MARK).split(" ", 2)
            name = names[int(number)]
            begun = int(number)
            match word:
                case "passed":
                    counted.passed.append(name)
                case "failed":
                    counted.failed[name] = why[0] if why else ""
                case "left":
                    counted.left_out[name] = why[0] if why else ""
            if word != _BEGINS:
                over.add(begun)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        status = process.wait()
    if begun is not None and begun not in over:
        how = f"said nothing for {patience_s:.0f} s" if is_hung else f"process ended with {status}"
        counted.failed[names[begun]] = how
        over.add(begun)
    return over


def _lines(process: subprocess.Popen[bytes], patience_s: float) -> Iterator[str | None]:
    """The lines of a process, and None once it has been silent for too long."""
    assert process.stdout is not None
    rest, patience = b"", START_S + patience_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(patience):
                yield None
                return
            read = os.read(process.stdout.fileno(), 65536)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            patience = patience_s
            for line in lines:
                yield line.decode(errors="replace")
