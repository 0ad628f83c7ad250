"""Run one program again, from the line that a red test printed.

    PYTHONPATH=.:tests python -m helpers.engine_programs.replay 'streams=3 ...: mix d0[0:4] ...'

Threads may interleave differently each time, so the program runs until it fails, at most `--times`
times.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from helpers.engine_programs.device_faults import differences_after_fault
from helpers.engine_programs.judge import differences
from helpers.engine_programs.program_text import from_text
from helpers.engine_programs.steps import Program, Setting, Wild


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit with status 1 and print the differences, once a run differs from the serial meaning."""
    parser = argparse.ArgumentParser(
        prog="helpers.engine_programs.replay", description="Run one program again."
    )
    parser.add_argument("text", help="the line that a red test printed")
    parser.add_argument("--times", type=int, default=100, help="how often at most (100)")
    options = parser.parse_args(arguments)
    # The same default as in conftest.py, which is not loaded here.
    os.environ.setdefault("CUDASYNC_SOFTGPU_DEVICES", "3")
    program, setting = from_text(options.text)
    for time in range(1, options.times + 1):
        found = judge(program, setting, trace=time % 2 == 0)
        if found:
            print(f"run {time} differs:", *found, sep="\n")
            return 1
    print(f"{options.times} runs, no difference")
    return 0


def judge(program: Program, setting: Setting, *, trace: bool) -> list[str]:
    """The errors of one run, from the judge for this kind of program."""
    if any(isinstance(push.step, Wild) for push in program.pushes):
        return differences_after_fault(program, setting)
    return differences(program, setting, trace=trace)


if __name__ == "__main__":
    raise SystemExit(main())
