"""Cellar. Functions that no driver has: a program is run once for each order of its commands.

    CUresult cudasyncExploreBegin(const char *order)
    CUresult cudasyncExploreNext(unsigned int *hasMore)
    CUresult cudasyncExploreReport(char *text, unsigned int size)
    CUresult cudasyncExploreOp(const char *site)
    CUresult cudasyncExploreEnd(void)

Begin, then Next before each run of the program until it says 0, then End. With an order, which a
report has told, there is one run, in that order. Next first finishes what the run before left
undone. A report is JSON: `orders` that were run, whether there `has_more`, `doubts` (why other
orders may be possible), and of the latest run `order` and `steps`. A step names the line of
the program that asked for it: that of the nearest caller, unless Op says that the thread now does
what was asked for at `site`; an empty one ends that.
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
from cudasync.softgpu.core.exploration.session import Session

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


def _session(machine: Machine) -> Session:
    if machine.exploration is None:
        raise DriverFailure(NOT_PERMITTED, "no exploration is under way")
    return machine.exploration


@export("cudasyncExploreBegin", signature="char const *")
def cudasync_explore_begin(machine: Machine, order: int) -> None:
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
