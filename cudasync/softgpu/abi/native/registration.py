"""Cellar, abi. A program's registrations: its fat binaries, and host addresses of symbols.

The compiler's code registers before main, and when a shared library is loaded, without Python: see
`library.c`. The list is read when a symbol is asked for that is not known yet. A fat binary is
loaded at its first use.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.locks import Lock
from cudasync.softgpu.abi.marshalling.image_pointers import image_at
from cudasync.softgpu.abi.marshalling.pointers import get_text
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.modules.modules import Library

INVALID_SYMBOL: Final = 13
INVALID_DEVICE_FUNCTION: Final = 98
_FAT_BINARY, _KERNEL, _VARIABLE, _MANAGED, _OVER = range(5)


class _Record(ctypes.Structure):
    """A record of `library.c`."""

    _fields_ = (
        ("next", ctypes.c_void_p),
        ("kind", ctypes.c_uint64),
        ("words", ctypes.c_uint64 * 6),
    )


class FatBinary:
    """One fat binary of the program, and its library once it is loaded."""

    def __init__(self, wrapper: int) -> None:
        self.wrapper = wrapper
        self.library: Library | None = None
        self.managed: list[tuple[int, str]] = []
        self.hosts: list[int] = []

    def load(self, machine: Machine) -> Library:
        """The library, loaded now if it was not; DriverFailure as from `cuLibraryLoadData`."""
        if self.library is None:
            image = image_at(self.wrapper, machine.capability)
            self.library = machine.modules.load_library(image)
        return self.library


class Registrations:
    """The symbols of the program by their host addresses."""

    def __init__(self) -> None:
        self._next = 0
        self._lock = Lock()
        self._fat_binaries: dict[int, FatBinary] = {}
        self._kernels: dict[int, tuple[FatBinary, str]] = {}
        self._variables: dict[int, tuple[FatBinary, str]] = {}
        self.handles: dict[int, int] = {}
        """By host address: the handle of a kernel that was asked for before."""

    def read_from(self, first: int) -> None:
        """Read the list whose first link is at this address."""
        self._next = first

    def kernel(self, machine: Machine, host: int) -> int:
        """The handle of a kernel by the address of its host function.

        A handle of a kernel or a function stands for itself. INVALID_DEVICE_FUNCTION for any other
        number.
        """
        found = self.handles.get(host)
        if found is not None:
            return found
        self._read()
        place = self._kernels.get(host)
        if place is None:
            if host in machine.modules.live_functions:
                return host
            raise DriverFailure(
                INVALID_DEVICE_FUNCTION,
                f"the program has no kernel whose host function is {host:#x}",
            )
        fat_binary, name = place
        handle = machine.modules.find_kernel(fat_binary.load(machine), name).handle
        self.handles[host] = handle
        return handle

    def variable(self, machine: Machine, host: int) -> Allocation:
        """The memory of a variable by its host address, in the current context; INVALID_SYMBOL."""
        place = self._variables.get(host)
        if place is None:
            self._read()
            place = self._variables.get(host)
        if place is None:
            raise DriverFailure(
                INVALID_SYMBOL, f"the program has no device variable whose symbol is {host:#x}"
            )
        fat_binary, name = place
        modules = machine.modules
        module = modules.module_of(fat_binary.load(machine), machine.context())
        return modules.find_variable(module, name)

    def fat_binary(self, handle: int) -> FatBinary | None:
        """The fat binary of a handle that registration returned."""
        self._read()
        return self._fat_binaries.get(handle)

    def wrappers(self) -> list[int]:
        """The addresses of the wrappers of all fat binaries."""
        self._read()
        return [each.wrapper for each in self._fat_binaries.values()]

    def _read(self) -> None:
        with self._lock:
            records = []
            while self._next and (address := ctypes.c_uint64.from_address(self._next).value):
                records.append((address, _Record.from_address(address)))
                self._next = address + _Record.next.offset
            # Registrations of a library that has been unloaded are skipped.
            over = {record.words[0] for _, record in records if record.kind == _OVER}
            for address, record in records:
                if record.kind == _OVER:
                    self._forget(record.words[0])
                elif (address if record.kind == _FAT_BINARY else record.words[0]) not in over:
                    self._enter(address, record)

    def _enter(self, address: int, record: _Record) -> None:
        if record.kind == _FAT_BINARY:
            self._fat_binaries[address] = FatBinary(record.words[0])
            return
        fat_binary = self._fat_binaries.get(record.words[0])
        if fat_binary is None:
            return
        host, name = record.words[1], get_text(record.words[2])
        if record.kind == _KERNEL:
            self._kernels[host] = fat_binary, name
        elif record.kind == _VARIABLE:
            self._variables[host] = fat_binary, name
        else:
            fat_binary.managed.append((host, name))
        fat_binary.hosts.append(host)

    def _forget(self, handle: int) -> None:
        fat_binary = self._fat_binaries.pop(handle, None)
        for host in fat_binary.hosts if fat_binary is not None else ():
            for symbols in (self._kernels, self._variables, self.handles):
                symbols.pop(host, None)


REGISTRATIONS: Final = Registrations()
