"""Cellar. Operations on texture and surface objects: the verbs behind the driver's calls."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.device_limits import (
    TEXTURE_ALIGNMENT,
    TEXTURE_PITCH_ALIGNMENT,
)
from cudasync.softgpu.core.driver_types.handles import Handles
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.textures.arrays import SURFACE_LDST
from cudasync.softgpu.core.textures.objects import (
    SurfaceObject,
    TextureObject,
    surface_bytes,
    texture_bytes,
)
from cudasync.softgpu.core.textures.resources import (
    Kind,
    Picture,
    Resource,
    Sampling,
    Texels,
    View,
    memory_format,
    picture_of,
    viewed_format,
)
from cudasync.softgpu.interface.texture_layout import ENDED

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.textures.arrays import Array

_FACES: Final = 6
_MOST_LINEAR: Final = 1 << 27
# A header, sixteen levels, a table: room for any object, allocated before its bytes are made.
_MOST_BYTES: Final = 4096


class ObjectManager:
    """All texture and surface objects of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.textures: Handles[TextureObject] = Handles("texture object", code=INVALID_VALUE)
        self.surfaces: Handles[SurfaceObject] = Handles("surface object", code=INVALID_VALUE)
        self._on = machine.under_objects

    def create_texture(
        self, resource: Resource, sampling: Sampling, view: View | None = None
    ) -> int:
        """The handle of a new texture object in the current context."""
        made = self.new_texture(resource, sampling, view)
        self.textures.add(made.allocation.start, made)
        return made.allocation.start

    def new_texture(
        self, resource: Resource, sampling: Sampling, view: View | None = None
    ) -> TextureObject:
        """Like `create_texture`, for an object without a handle for the program."""
        sampling.check()
        texels = self._texels(resource)
        if view is not None:
            texels = _viewed(texels, view)
        texture_bytes(texels, sampling, 0)  # Refuses invalid objects before memory is taken.
        memory = self._allocate(texels)
        _write(memory, texture_bytes(texels, sampling, memory.start))
        return TextureObject(memory, texels, resource, sampling, view)

    def create_surface(self, resource: Resource) -> int:
        """The handle of a new surface object in the current context."""
        made = self.new_surface(resource)
        self.surfaces.add(made.allocation.start, made)
        return made.allocation.start

    def new_surface(self, resource: Resource) -> SurfaceObject:
        """Like `create_surface`, for an object without a handle for the program."""
        if resource.kind is not Kind.ARRAY:
            raise DriverFailure(INVALID_VALUE, "a surface object needs an array")
        array = self._machine.arrays.copied(resource.handle)
        if not array.shape.flags & SURFACE_LDST:
            raise DriverFailure(
                INVALID_VALUE,
                "a surface object needs an array created with CUDA_ARRAY3D_SURFACE_LDST",
            )
        texels = self._texels(resource)
        memory = self._allocate(texels)
        _write(memory, surface_bytes(texels))
        return SurfaceObject(memory, texels, resource)

    def _allocate(self, texels: Texels) -> Allocation:
        machine = self._machine
        table = machine.context().device.memory
        memory = machine.memory.allocate(table, _MOST_BYTES, MemoryKind.OBJECT)
        if texels.allocation is not None:
            self._on.setdefault(texels.allocation, set()).add(memory)
        return memory

    def destroy_texture(self, handle: int) -> None:
        """cuTexObjectDestroy: earlier launches may still use the object."""
        self.end(self.textures.remove(handle))

    def destroy_surface(self, handle: int) -> None:
        """cuSurfObjectDestroy, likewise."""
        self.end(self.surfaces.remove(handle))

    def end(self, ended: TextureObject | SurfaceObject) -> None:
        """End an object, once earlier launches are done."""
        machine, memory = self._machine, ended.allocation
        if machine.executor.deferred.put_off(lambda: self.end(ended)):
            return
        of = ended.texels.allocation
        if of is not None and of in self._on:
            self._on[of].discard(memory)
            if not self._on[of]:
                self._on.pop(of, None)
        context = memory.context
        if context.error or context.capturing:
            # A wait would end the capture, so the object's few bytes go with the context.
            return
        machine.streams.synchronize_context(context)
        machine.memory.end(memory)

    def memory_ended(self, allocation: Allocation) -> None:
        """Memory is freed: mark the objects on it, so that their next use is a fault."""
        for memory in self._on.pop(allocation, ()):
            if memory.is_live:
                ctypes.c_uint64.from_address(memory.start).value = ENDED

    def forget(self, context: Context) -> None:
        """Drop the objects of an ending context; their memory goes with the context."""
        for texture in self.textures:
            if texture.allocation.context is context:
                self.textures.discard(texture.allocation.start)
        for surface in self.surfaces:
            if surface.allocation.context is context:
                self.surfaces.discard(surface.allocation.start)

    # The texels of objects

    def _texels(self, resource: Resource) -> Texels:
        arrays = self._machine.arrays
        match resource.kind:
            case Kind.ARRAY:
                array = arrays.copied(resource.handle)
                return _of_arrays(array, [array])
            case Kind.MIPMAPPED:
                if resource.handle not in arrays.mipmaps.objects:
                    raise DriverFailure(INVALID_VALUE, "there is no such mipmapped array")
                levels = arrays.mipmap(resource.handle).levels
                return _of_arrays(levels[0], levels)
            case Kind.LINEAR:
                return self._of_row(resource)
        return self._of_rows(resource)

    def _of_row(self, resource: Resource) -> Texels:
        of, channels = memory_format(resource)
        texel = of.size_bytes * channels
        count = resource.size_bytes // texel
        if not 0 < count <= _MOST_LINEAR:
            raise DriverFailure(
                INVALID_VALUE,
                f"a texture in linear memory has 1 to {_MOST_LINEAR} texels, not {count}",
            )
        row = count * texel
        picture = Picture(resource.address, row, row, count, 1, 1, row)
        place = self._machine.memory.place(resource.address, row)
        _check_alignment(resource)
        return Texels(of, channels, (picture,), 0, False, True, place.allocation)

    def _of_rows(self, resource: Resource) -> Texels:
        of, channels = memory_format(resource)
        row = resource.width * of.size_bytes * channels
        pitch, height = resource.pitch, resource.height
        if not row or not height or pitch < row or pitch % TEXTURE_PITCH_ALIGNMENT:
            raise DriverFailure(
                INVALID_VALUE,
                f"{height} rows of {row} bytes cannot lie {pitch} bytes apart: the pitch is a "
                f"multiple of {TEXTURE_PITCH_ALIGNMENT}",
            )
        whole = pitch * (height - 1) + row
        picture = Picture(resource.address, pitch, whole, resource.width, height, 1, row)
        place = self._machine.memory.place(resource.address, whole)
        _check_alignment(resource)
        return Texels(of, channels, (picture,), 0, False, False, place.allocation)


def _check_alignment(resource: Resource) -> None:
    if resource.address % TEXTURE_ALIGNMENT:
        raise DriverFailure(
            INVALID_VALUE,
            f"{resource.address:#x} is not aligned for a texture: {TEXTURE_ALIGNMENT} bytes",
        )


def _of_arrays(first: Array, levels: list[Array]) -> Texels:
    shape = first.shape
    layers = shape.slices // (_FACES if shape.is_cubemap else 1) if shape.is_layered else 0
    pictures = tuple(picture_of(each.shape, each.address) for each in levels)
    allocation, is_cube = first.allocation, shape.is_cubemap
    return Texels(shape.format, shape.channels, pictures, layers, is_cube, False, allocation)


def _viewed(texels: Texels, view: View) -> Texels:
    """The texels of a view: some of the levels and layers, perhaps in another format."""
    of, channels = viewed_format(view.format, texels)
    levels = texels.levels[view.first_level : view.last_level + 1]
    first = texels.levels[0]
    wanted = tuple(
        each or own
        for each, own in zip((view.width, view.height), (first.width, first.height), strict=True)
    )
    if not levels or wanted != (first.width, first.height):
        raise DriverFailure(
            INVALID_VALUE, "a view must have the array's size, and only levels of the array"
        )
    if texels.layers and (view.first_layer or view.last_layer):
        if not view.first_layer <= view.last_layer < texels.layers:
            raise DriverFailure(INVALID_VALUE, f"the array has only {texels.layers} layers")
        skipped = view.first_layer * (_FACES if texels.is_cube else 1)
        count = view.last_layer - view.first_layer + 1
        levels = tuple(
            replace(each, address=each.address + skipped * each.slice_bytes) for each in levels
        )
        texels = replace(texels, layers=count)
    return replace(texels, format=of, channels=channels, levels=levels)


def _write(memory: Allocation, data: bytes) -> None:
    assert len(data) <= memory.size_bytes, len(data)
    ctypes.memmove(memory.start, data, len(data))
