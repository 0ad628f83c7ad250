"""Random programs that lose a device harm nothing else, each in a process of its own.

    PYTHONPATH=.:tests CUDASYNC_DEVICE=cuda python -m bench.hardware.fault_programs --count 40

A case is a seed. The line of a program that went wrong runs it again, by
`python -m helpers.engine_programs.replay`.
"""

from __future__ import annotations

import argparse

from helpers.engine_programs.device_faults import differences_after_fault
from helpers.engine_programs.fault_programs import (
    computing_faults,
    crossing_programs,
    faulting_programs,
)
from helpers.engine_programs.judge import replay_line
from helpers.engine_programs.steps import Program, Setting
from helpers.engine_programs.strategies import settings as engine_settings
from hypothesis import HealthCheck, Phase, given, seed, settings

import cudasync as cs
from bench.hardware import cases

KINDS = (lambda: faulting_programs(max_steps=20), crossing_programs, computing_faults)
# The first examples of a seed are small.
EXAMPLES = 8
few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def drawn(number: int) -> tuple[Program, Setting]:
    """The last of the programs that this seed draws."""
    found = []

    @seed(number)
    @few
    @given(KINDS[number % len(KINDS)](), engine_settings())
    def keep(program: Program, setting: Setting) -> None:
        found.append((program, setting))

    keep()
    return found[-1]


def run(options: argparse.Namespace, number: int) -> None:
    program, setting = drawn(number)
    # A GPU does not come back before the process ends.
    comes_back = cs.Device(0).is_software
    found = differences_after_fault(program, setting, comes_back=comes_back)
    if found:
        raise AssertionError("; ".join([*found[:4], replay_line(program, setting)]))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=40, metavar="N", help="programs (40)")


if __name__ == "__main__":
    raise SystemExit(
        cases.main(
            "bench.hardware.fault_programs",
            __doc__,
            lambda options: [f"seed {number}" for number in range(options.count)],
            run,
            options=add_options,
            cases_of_a_process=1,
        )
    )
