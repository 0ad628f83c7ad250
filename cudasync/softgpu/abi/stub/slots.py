"""Cellar, abi. The slots of a library that `elf.py` wrote: the targets of its exports' jumps.

A slot holds the address of native code that calls Python, or of code that returns a constant.
Python can change it at any time, so all slots can switch at once to answers without Python.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from cudasync.softgpu.abi.stub import python_entry as native
from cudasync.softgpu.abi.stub.elf import SLOTS_SYMBOL, TRAMPOLINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.softgpu.abi.stub.elf import Stub


class Slots:
    """The slots of one loaded library, taken one after another."""

    def __init__(self, stub: Stub, base: int, count: int, constants: Sequence[int]) -> None:
        self.count = count
        self.used = 0
        self._constants = {value: index for index, value in enumerate(constants)}
        self._constants_at = base + stub.constants_offset
        self._trampolines = base + stub.trampolines_offset
        self._slots = (ctypes.c_uint64 * count).from_address(base + stub.slots_offset)
        self._entry = base + stub.entry_offset if stub.entry_offset is not None else None
        self._table = base + stub.table_offset
        if self._entry is not None:
            native.write_interface(self._table)
        self._callbacks: list[Any] = []  # Keeps the slots' targets alive.

    def take(self, function: Callable[..., int], types: tuple[Any, ...]) -> int:
        """Point the next slot at a function; the address to hand out, or 0 if no slot is left."""
        index = self.used
        if index == self.count:
            return 0
        self.used += 1
        self._slots[index] = self._enter(index, function, types)
        return self.address(index)

    def address(self, index: int) -> int:
        """The trampoline that jumps to a slot's address."""
        return self._trampolines + TRAMPOLINE_BYTES * index

    def lead(self, index: int, callback: Any) -> None:
        """Let a slot jump to a ctypes callback."""
        self._callbacks.append(callback)
        self._slots[index] = ctypes.cast(callback, ctypes.c_void_p).value or 0

    def answer(self, index: int, constant: int) -> None:
        """Let a slot return a constant from now on, without Python."""
        self._slots[index] = self._constants_at + TRAMPOLINE_BYTES * self._constants[constant]

    def _enter(self, index: int, function: Callable[..., int], types: tuple[Any, ...]) -> int:
        """The address of native code that calls `function`, for its slot."""
        kinds = native.kinds_of(types) if self._entry is not None else None
        if self._entry is None or kinds is None:
            callback = ctypes.CFUNCTYPE(ctypes.c_int, *types)(function)
            self._callbacks.append(callback)
            return ctypes.cast(callback, ctypes.c_void_p).value or 0
        self._callbacks.append(native.write_record(self._table, index, function, kinds))
        return self._entry


def base_of(library: ctypes.CDLL, stub: Stub) -> int:
    """The load address of a library with these bytes."""
    return ctypes.addressof(ctypes.c_uint64.in_dll(library, SLOTS_SYMBOL)) - stub.slots_offset
