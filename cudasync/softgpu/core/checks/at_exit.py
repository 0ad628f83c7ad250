"""Cellar. A check of a whole process: reports each finding at once, and a summary at the end."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.core.checks.session import Check
    from cudasync.softgpu.core.machine import Machine


def start_from_process(
    machine: Machine, kinds: Iterable[str], *, most: int, suppressions: str
) -> None:
    """Check from now on. DriverFailure for unknown kinds and invalid suppressions."""
    # NumPy loads with them, as slowly as the whole driver.
    from cudasync.softgpu.core.checks.findings import lines_of
    from cudasync.softgpu.core.checks.session import Check

    check = Check(
        machine,
        [kind.strip() for kind in kinds],
        most=most,
        suppressions=lines_of(suppressions),
        tell=True,
    )
    machine.check_under_way = check
    # Runs before the library is closed, and after the program's own exit functions.
    atexit.register(_summarise, machine, check)


def _summarise(machine: Machine, check: Check) -> None:
    if machine.check_under_way is not check:
        return  # The check was ended by a request for its report.
    gc.collect()
    try:
        check.finish()
    except DriverFailure as failure:
        sys.stderr.write(
            f"cudasync check: work that was still enqueued at exit failed: {failure.detail}\n"
        )
    sys.stderr.write(f"cudasync check: {check.findings.summary()}\n")
