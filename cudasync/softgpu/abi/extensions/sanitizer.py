"""Cellar. Functions that no driver has: they check a program while it runs.

    CUresult cudasyncSanitizeBegin(const char *settings)
    CUresult cudasyncSanitizeReport(char *text, unsigned int size)
    CUresult cudasyncSanitizeHost(const void *memory, size_t size, unsigned int writes)
    CUresult cudasyncSanitizeAdd(const char *finding)
    CUresult cudasyncSanitizeEnd(void)

The settings are JSON: `kinds` (of mem, race, init, sync, leak), and optionally `most` (the number
of findings), `suppressions`, and `tell` (report each on stderr). Report first executes the work
that nothing has waited for, and looks for leaks; it returns JSON. Host declares that the calling
thread reads or writes memory that the GPU can reach; such host accesses are not observed. Add
reports what the caller has found by itself, as JSON in the form of Report. NOT_PERMITTED if no
check is running.
"""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import get_text, need
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.checks.findings import Access, Finding
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_PERMITTED,
    DriverFailure,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.checks.session import Check
    from cudasync.softgpu.core.machine import Machine


def _check(machine: Machine) -> Check:
    if machine.check_under_way is None:
        raise DriverFailure(NOT_PERMITTED, "no check is running: begin one first")
    return machine.check_under_way


@export("cudasyncSanitizeBegin", signature="char const *")
def cudasync_sanitize_begin(machine: Machine, settings: int) -> None:
    need(settings)
    # NumPy loads with it, as slowly as the whole driver.
    from cudasync.softgpu.core.checks.session import Check

    machine.check_under_way = Check(machine, **json.loads(get_text(settings)))


@export("cudasyncSanitizeReport", signature="char *, unsigned int", before_init=True)
def cudasync_sanitize_report(machine: Machine, text: int, size: int) -> None:
    need(text)
    check = _check(machine)
    check.finish()
    data = json.dumps(check.findings.report()).encode() + b"\0"
    if len(data) > size:
        raise DriverFailure(INVALID_VALUE, f"the report has {len(data)} bytes")
    ctypes.memmove(text, data, len(data))


@export("cudasyncSanitizeHost", signature="void const *, size_t, unsigned int")
def cudasync_sanitize_host(machine: Machine, memory: int, size: int, writes: int) -> None:
    _check(machine).host(memory, size, is_write=bool(writes))


@export("cudasyncSanitizeAdd", signature="char const *")
def cudasync_sanitize_add(machine: Machine, finding: int) -> None:
    need(finding)
    check, fields = _check(machine), json.loads(get_text(finding))
    fields["accesses"] = [Access(**each) for each in fields["accesses"]]
    check.findings.add(Finding(**fields))


@export("cudasyncSanitizeEnd", signature="void", before_init=True)
def cudasync_sanitize_end(machine: Machine) -> None:
    check, machine.check_under_way = _check(machine), None
    check.end()
