"""Cellar. Driver calls about the driver itself: errors, version, start, function look-up."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import get_text, need, offer_u32, put_i32, put_u64
from cudasync.softgpu.abi.stub.elf import SONAME
from cudasync.softgpu.abi.stub.error_strings import fixed_address, name_of, passing_address
from cudasync.softgpu.abi.stub.loaded_libraries import RUNTIME, is_loaded_file, native_library
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, NOT_FOUND, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable
    from cudasync.softgpu.core.machine import Machine

# At least the version of any NVRTC in use; otherwise cuda.core warns that its PTX is too new.
DRIVER_VERSION: Final = 13050

_SYMBOL_FOUND: Final = 0
_SYMBOL_NOT_FOUND: Final = 1
_VERSION_NOT_SUFFICIENT: Final = 2
# CUdriverProcAddress_flags.
_AS_CALLED, _LEGACY, _PER_THREAD = 0, 1, 2
_PROC_ADDRESS: Final = "char const *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *"
_PROC_ADDRESS_V1: Final = "char const *, void **, int, cuuint64_t"

_OWN_RUNTIME: Final = (
    "the program, or a library of it, brings a CUDA runtime of its own, which needs undocumented "
    "tables of the driver: link it with -L DIR of `python -m cudasync native --libs DIR`, or with "
    "-cudart shared"
)
_told: list[bool] = []
_tables: list[FunctionTable] = []


def serve(table: FunctionTable) -> None:
    """Make the calls below answer from `table`."""
    _tables[:] = [table]


@export("cuInit", before_init=True)
def cu_init(machine: Machine, flags: int) -> None:
    if flags:
        raise DriverFailure(INVALID_VALUE, "the flags of cuInit must be 0")
    machine.is_initialized = True


@export("cuDriverGetVersion", before_init=True)
def cu_driver_get_version(_machine: Machine, version: int) -> None:
    put_i32(version, DRIVER_VERSION)


@export("cuGetErrorName", before_init=True)
def cu_get_error_name(_machine: Machine, code: int, text: int) -> None:
    put_u64(text, 0)
    put_u64(text, fixed_address(name_of(code)))


@export("cuGetErrorString", before_init=True)
def cu_get_error_string(_machine: Machine, code: int, text: int) -> None:
    put_u64(text, 0)
    name_of(code)
    put_u64(text, passing_address(_tables[0].details.text(code)))


@export("cuGetProcAddress", 11030, before_init=True, signature=_PROC_ADDRESS_V1)
def cu_get_proc_address(
    machine: Machine, name: int, function: int, version: int, flags: int
) -> None:
    cu_get_proc_address_v2(machine, name, function, version, flags, 0)


@export("cuGetProcAddress", 12000, before_init=True, signature=_PROC_ADDRESS)
def cu_get_proc_address_v2(
    machine: Machine, name: int, function: int, version: int, flags: int, status: int
) -> None:
    need(function)
    put_u64(function, 0)
    offer_u32(status, _SYMBOL_NOT_FOUND)
    if flags not in (_AS_CALLED, _LEGACY, _PER_THREAD):
        raise DriverFailure(INVALID_VALUE, f"unknown flags {flags:#x}")
    per_thread = flags == _PER_THREAD or (flags == _AS_CALLED and machine.streams.is_per_thread())
    text = get_text(name)
    address = _tables[0].get_proc_address(text, version, per_thread=per_thread)
    if not address:
        offer_u32(status, _VERSION_NOT_SUFFICIENT)
        raise DriverFailure(NOT_FOUND, f"{text} is newer than version {version}")
    put_u64(function, address)
    offer_u32(status, _SYMBOL_FOUND)


@export("cuGetExportTable", before_init=True, signature="void const **, CUuuid const *")
def cu_get_export_table(_machine: Machine, table: int, _identity: int) -> int:
    # There are no such tables. But the function must exist: NVRTC looks it up by name in any loaded
    # libcuda, and calls it unasked.
    is_native = native_library(SONAME) is not None or native_library(RUNTIME) is not None
    if is_native and not _told and not is_loaded_file("libnvrtc"):
        _told.append(True)
        sys.stderr.write(f"cudasync native: {_OWN_RUNTIME}\n")
    if table:
        put_u64(table, 0)
    return NOT_FOUND
