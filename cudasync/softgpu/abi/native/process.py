"""Cellar, abi. The software GPU in the process of a native program: its start and its end.

`library.c` calls these functions with the GIL, in the thread of the first call.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from cudasync.errors import CudasyncError
from cudasync.softgpu.abi.native import slots
from cudasync.softgpu.abi.native.managed_variables import end_process
from cudasync.softgpu.abi.native.registration import REGISTRATIONS
from cudasync.softgpu.abi.native.versions import check_bindings, check_programs
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

_tables: list[FunctionTable] = []
_checks: list[Any] = []


def start(install: Callable[[], FunctionTable]) -> None:
    """Install the software GPU and fill the libraries' slots, or end the process."""
    os.environ.setdefault("CUDASYNC_SOFTGPU_REPORT", "1")
    try:
        check_bindings()
        table = install()
        slots.fill(table)
        check_programs(REGISTRATIONS.wrappers())
    except (CudasyncError, ValueError) as problem:
        end_process(str(problem))
    except DriverFailure as problem:
        end_process(problem.detail)
    # The second library of a process also comes here.
    if not _tables:
        _tables.append(table)
        _checks.append(table.machine.check_under_way)


def end() -> None:
    """End as the interpreter would: threads, then exit handlers, which report check findings."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    findings = sum(len(check.findings) for check in _checks if check is not None)
    slots.tell_findings(findings)
