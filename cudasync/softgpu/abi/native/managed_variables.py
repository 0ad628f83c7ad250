"""Cellar, abi. `__managed__` variables: the host's pointers to them lead to the device's memory.

The compiler's code asks for the pointers before the host first uses a variable. Memory of a device
is memory of the process here, so one place serves both. A second device would have its own module
and variables, and the pointers would lead nowhere. So with several devices, the process ends with a
line that says so.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from cudasync.softgpu.abi.marshalling.pointers import put_u64
from cudasync.softgpu.abi.native.registration import REGISTRATIONS
from cudasync.softgpu.abi.runtime.table import enter_plain, prepared
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.abi.native.registration import FatBinary
    from cudasync.softgpu.core.machine import Machine

_USAGE = 2


def cuda_init_module(machine: Machine, handle: int) -> int:
    """Place the variables of a fat binary; returns 1, which the compiler's code expects."""
    fat_binary = REGISTRATIONS.fat_binary(handle)
    if fat_binary is not None and fat_binary.managed:
        try:
            _in_context(machine, fat_binary)
        except DriverFailure as problem:
            end_process(problem.detail)
    return 1


enter_plain("__cudaInitModule", "p", cuda_init_module)


def _place(machine: Machine, fat_binary: FatBinary) -> None:
    if len(machine.devices) > 1:
        end_process(
            "the program has __managed__ variables, which need a single device: run it with "
            "CUDASYNC_SOFTGPU_DEVICES=1"
        )
    modules = machine.modules
    module = modules.module_of(fat_binary.load(machine), machine.context())
    for host, name in fat_binary.managed:
        put_u64(host, modules.find_variable(module, name).start)


_in_context = prepared(_place)


def end_process(why: str) -> NoReturn:
    """End a process that cannot go on, with a line that says why, and status 2."""
    sys.stderr.write(f"cudasync native: {why}\n")
    sys.stderr.flush()
    os._exit(_USAGE)
