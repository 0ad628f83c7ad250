"""Cellar, abi. Fills the slots of a native library that is loaded in this process.

A slot gets the address of a trampoline of the driver's stub, so at the end one table answers for
all of them. Functions that do not return a code have ctypes callbacks.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cudasync.softgpu.abi.native import (  # noqa: F401 - they enter their functions.
    launches,
    managed_variables,
    symbols,
)
from cudasync.softgpu.abi.native.errors import name_address, text_address
from cudasync.softgpu.abi.native.host_functions import going_on
from cudasync.softgpu.abi.native.kernel_arguments import entry_of
from cudasync.softgpu.abi.native.names import form_of
from cudasync.softgpu.abi.native.registration import REGISTRATIONS
from cudasync.softgpu.abi.stub.elf import SONAME as DRIVER
from cudasync.softgpu.abi.stub.loaded_libraries import (
    FINDINGS,
    NAMES,
    RECORDS,
    RUNTIME,
    SLOTS,
    native_library,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

_MISSING: Final = "the software GPU's runtime library does not have it"

_callbacks: list[Any] = []
_filled: set[int] = set()


def fill(table: FunctionTable) -> None:
    """Fill the slots of each loaded native library that has not been filled yet."""
    for soname, address_of in ((RUNTIME, _of_runtime(table)), (DRIVER, table.symbol_address)):
        library = native_library(soname)
        if library is None:
            continue
        slots = ctypes.addressof(ctypes.c_void_p.in_dll(library, SLOTS))
        if slots in _filled:
            continue
        _filled.add(slots)
        if soname == RUNTIME:
            REGISTRATIONS.read_from(ctypes.c_uint64.in_dll(library, RECORDS).value)
        for index, name in enumerate(_names(library)):
            ctypes.c_uint64.from_address(slots + 8 * index).value = address_of(name)


def tell_findings(count: int) -> None:
    """Make the process end with status 1 if checks have found something."""
    for soname in (RUNTIME, DRIVER):
        library = native_library(soname)
        if library is not None:
            ctypes.c_int.in_dll(library, FINDINGS).value = count


def _names(library: ctypes.CDLL) -> list[str]:
    names: list[str] = []
    at = ctypes.addressof(ctypes.c_void_p.in_dll(library, NAMES))
    while address := ctypes.c_uint64.from_address(at + 8 * len(names)).value:
        names.append(ctypes.string_at(address).decode())
    return names


def _of_runtime(table: FunctionTable) -> Callable[[str], int]:
    """The address to call for a symbol of the runtime's library."""
    others = {
        "cudaGetErrorName": ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(name_address),
        "cudaGetErrorString": ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(
            lambda code: text_address(table, code)
        ),
        "cudaCreateChannelDesc": ctypes.CFUNCTYPE(ctypes.c_size_t, *_CHANNEL)(_channel),
    }
    _callbacks.append(others)
    streams = table.machine.streams

    def address_of(symbol: str) -> int:
        name, is_per_thread = form_of(symbol)
        if name in others:
            return ctypes.cast(others[name], ctypes.c_void_p).value or 0
        entry = entry_of(name)
        entry = None if entry is None else going_on(entry)
        if entry is not None and is_per_thread:
            entry = replace(entry, call=streams.per_thread(entry.call))
        return table.enter(symbol, entry, _MISSING)

    return address_of


# A structure of 20 bytes is returned through an address in the first argument (x86-64 psABI).
_CHANNEL: Final = (ctypes.c_size_t, *[ctypes.c_int] * 5)


def _channel(made: int, x: int, y: int, z: int, w: int, kind: int) -> int:
    ctypes.memmove(made, ctypes.byref((ctypes.c_int * 5)(x, y, z, w, kind)), 20)
    return made
