"""Cellar. Operations on arrays: the verbs behind the driver's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.handles import Handles, new_handle
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_HANDLE,
    INVALID_VALUE,
    DriverFailure,
)
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.textures.arrays import Array, MipmappedArray, levels_of, mipmapped

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.textures.arrays import Shape


class ArrayManager:
    """All CUDA arrays of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.arrays: Handles[Array] = Handles("CUDA array")
        self.mipmaps: Handles[MipmappedArray] = Handles("mipmapped array")

    def create(self, shape: Shape) -> Array:
        """A new array in the current context; OUT_OF_MEMORY if there is no room."""
        memory = self._allocate(shape.size_bytes)
        made = Array(new_handle(), shape, memory, memory.start)
        self.arrays.add(made.handle, made)
        return made

    def create_mipmapped(self, shape: Shape, count: int) -> MipmappedArray:
        """Like `create`, with `count` levels."""
        parts = levels_of(shape, count)
        last, start = parts[-1]
        made = mipmapped(shape, parts, self._allocate(start + last.size_bytes))
        self.mipmaps.add(made.handle, made)
        for level in made.levels:
            self.arrays.objects[level.handle] = level
        return made

    def _allocate(self, size_bytes: int) -> Allocation:
        machine = self._machine
        machine.captures.refuse_unsafe("an allocation")
        memory = machine.context().device.memory
        return machine.memory.allocate(memory, size_bytes, MemoryKind.ARRAY)

    def get(self, handle: int) -> Array:
        """The array of a handle, on a usable context."""
        found = self.arrays.get(handle)
        self._machine.check(found.allocation.context)
        return found

    def copied(self, handle: int) -> Array:
        """The array at an end of a copy, where a bad handle is INVALID_VALUE."""
        if handle not in self.arrays.objects:
            raise DriverFailure(INVALID_VALUE, f"{handle:#x} is not a live CUDA array")
        return self.get(handle)

    def mipmap(self, handle: int) -> MipmappedArray:
        """The mipmapped array of a handle, on a usable context."""
        found = self.mipmaps.get(handle)
        self._machine.check(found.allocation.context)
        return found

    def level(self, handle: int, number: int) -> Array:
        """A level of a mipmapped array."""
        levels = self.mipmap(handle).levels
        if number >= len(levels):
            raise DriverFailure(INVALID_VALUE, f"the array has only {len(levels)} levels")
        return levels[number]

    def destroy(self, handle: int) -> None:
        """cuArrayDestroy: waits for the context's work, then ends the array."""
        if self._machine.executor.deferred.put_off(lambda: self.destroy(handle)):
            return
        if self.get(handle).mipmap is not None:
            raise DriverFailure(
                INVALID_HANDLE,
                "a mipmap level cannot be destroyed alone: destroy its mipmapped array",
            )
        self._end(self.arrays.remove(handle).allocation)

    def destroy_mipmapped(self, handle: int) -> None:
        """cuMipmappedArrayDestroy: like `destroy`, with all levels."""
        if self._machine.executor.deferred.put_off(lambda: self.destroy_mipmapped(handle)):
            return
        self.mipmap(handle)
        ended = self.mipmaps.remove(handle)
        for level in ended.levels:
            self.arrays.discard(level.handle)
        self._end(ended.allocation)

    def _end(self, allocation: Allocation) -> None:
        machine = self._machine
        machine.captures.refuse_unsafe("a free")
        allocation.is_freeing = True
        machine.streams.synchronize_context(allocation.context)
        machine.memory.end(allocation)

    def forget(self, context: Context) -> None:
        """Drop the arrays of an ending context; their memory goes with the context."""
        for array in self.arrays:
            if array.allocation.context is context:
                self.arrays.discard(array.handle)
        for mipmap in self.mipmaps:
            if mipmap.allocation.context is context:
                self.mipmaps.discard(mipmap.handle)
