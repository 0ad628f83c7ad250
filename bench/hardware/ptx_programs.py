"""Every program of `ptx/isa` through the driver gives what its header says.

PYTHONPATH=.:tests CUDASYNC_DEVICE=cuda python -m bench.hardware.ptx_programs [--only NAME,...]
"""

from __future__ import annotations

import argparse
from functools import cache

from helpers.lowering.device_launch import run_on_device
from helpers.lowering.isa_cases import Case, all_cases

import cudasync as cs
from bench.hardware import cases

every_case = cache(all_cases)


def run(options: argparse.Namespace, number: int) -> None:
    case: Case = every_case()[number]
    capability = cs.Device(0).compute_capability
    if capability < case.compute_capability:
        raise cases.LeftOut(f"needs compute capability {case.compute_capability}")
    memory = run_on_device(case, case.memories())
    wrong = [line for name in case.expected for line in case.mismatches(name, memory[name])]
    if wrong:
        raise AssertionError("; ".join(wrong[:4]))


if __name__ == "__main__":
    raise SystemExit(
        cases.main(
            "bench.hardware.ptx_programs",
            __doc__,
            lambda options: [case.name for case in every_case()],
            run,
        )
    )
