"""Cellar. Functions that no driver has: they run a program once for each order of its commands.

    CUresult cudasyncExploreBegin(const char *order)
    CUresult cudasyncExploreNext(unsigned int *hasMore)
    CUresult cudasyncExploreReport(char *text, unsigned int size)
    CUresult cudasyncExploreOp(const char *site)
    CUresult cudasyncExploreEnd(void)

Call Begin, then Next before each run of the program until it returns 0, then End. With an order
from a report, there is one run, in that order. Next first finishes the pending work of the previous
run. A report is JSON: the `orders` that were run, whether it `has_more`, `doubts` (why other orders
may be possible), and the latest run's `order` and `steps`. A step names the line of the program
that caused it. That is the nearest caller's line, unless Op says that the thread now works for
`site`; an empty site ends that.
"""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import get_text, need, put_u32
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_PERMITTED,
    DriverFailure,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.exploration.session import Session
    from cudasync.softgpu.core.machine import Machine


def _session(machine: Machine) -> Session:
    if machine.exploration is None:
        raise DriverFailure(NOT_PERMITTED, "no exploration is running: begin one first")
    return machine.exploration


@export("cudasyncExploreBegin", signature="char const *")
def cudasync_explore_begin(machine: Machine, order: int) -> None:
    # Imported late, because few programs explore.
    from cudasync.softgpu.core.exploration.session import Session

    machine.exploration = Session(machine, get_text(order) if order else "")


@export("cudasyncExploreNext", signature="unsigned int *")
def cudasync_explore_next(machine: Machine, has_more: int) -> None:
    need(has_more)
    put_u32(has_more, _session(machine).next())


@export("cudasyncExploreReport", signature="char *, unsigned int")
def cudasync_explore_report(machine: Machine, text: int, size: int) -> None:
    need(text)
    data = json.dumps(_session(machine).report()).encode() + b"\0"
    if len(data) > size:
        raise DriverFailure(INVALID_VALUE, f"the report has {len(data)} bytes")
    ctypes.memmove(text, data, len(data))


@export("cudasyncExploreOp", signature="char const *")
def cudasync_explore_op(machine: Machine, site: int) -> None:
    if machine.exploration is not None:
        machine.exploration.begins_op(get_text(site) if site else "")


@export("cudasyncExploreEnd", signature="void")
def cudasync_explore_end(machine: Machine) -> None:
    session, machine.exploration = _session(machine), None
    session.end()
