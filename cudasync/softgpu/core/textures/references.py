"""Cellar. References of old PTX: variables of a module in which the driver keeps an object.

A setting takes effect at once, for later launches. A reference with impossible settings has no
object until another setting makes it possible; until then, a fetch is an illegal access.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.handles import Handles, new_handle
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, NOT_FOUND, DriverFailure
from cudasync.softgpu.core.textures.resources import Kind, Resource, Sampling

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.modules.modules import Module
    from cudasync.softgpu.core.textures.objects import SurfaceObject, TextureObject

_FLOAT = 0x20


@dataclass(slots=True, eq=False)
class Reference:
    """A reference to a texture or a surface; `variable` is None if no module has it."""

    handle: int
    is_surface: bool
    variable: Allocation | None
    resource: Resource | None = None
    sampling: Sampling = field(default_factory=lambda: Sampling((0, 0, 0)))
    # The format of memory that is bound later.
    format: int = _FLOAT
    channels: int = 1
    made: TextureObject | SurfaceObject | None = None


class ReferenceManager:
    """All references of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._references: Handles[Reference] = Handles("reference", code=INVALID_VALUE)
        self._of: dict[tuple[Module, str], Reference] = {}

    def of_module(self, module: Module, name: str, *, is_surface: bool) -> Reference:
        """The module's reference of this name and kind; NOT_FOUND if there is none."""
        kind = "surfref" if is_surface else "texref"
        declared = {each.name for each in module.compiled.variables if each.handle == kind}
        if name not in declared:
            raise DriverFailure(NOT_FOUND, f"the module has no .{kind} {name!r}")
        found = self._of.get((module, name))
        if found is None:
            found = Reference(new_handle(), is_surface, module.variables[name])
            self._of[module, name] = found
            self._references.add(found.handle, found)
        return found

    def create(self) -> Reference:
        """cuTexRefCreate: a reference without a module."""
        made = Reference(new_handle(), False, None)
        self._references.add(made.handle, made)
        return made

    def destroy(self, handle: int) -> None:
        """cuTexRefDestroy."""
        if self.get(handle).variable is not None:
            raise DriverFailure(
                INVALID_VALUE, "a reference of a module cannot be destroyed: unload the module"
            )
        self._references.remove(handle)

    def get(self, handle: int, *, is_surface: bool = False) -> Reference:
        """The reference of a handle."""
        found = self._references.get(handle)
        if found.is_surface is not is_surface:
            raise DriverFailure(
                INVALID_VALUE, f"{handle:#x} is a reference of the other kind (texture or surface)"
            )
        return found

    def bind(self, reference: Reference, resource: Resource | None) -> None:
        """Bind a reference to a resource; DriverFailure if that is impossible."""
        reference.resource = resource
        self._renew(reference)

    def set(self, reference: Reference, sampling: Sampling) -> None:
        """Set a reference's sampling."""
        sampling.check()
        reference.sampling = sampling
        try:
            self._renew(reference)
        except DriverFailure:
            # A later setting may make the object possible.
            return

    def _renew(self, reference: Reference) -> None:
        variable, resource = reference.variable, reference.resource
        if variable is None or not variable.is_live:
            return
        objects = self._machine.objects
        word = ctypes.c_uint64.from_address(variable.start)
        before, reference.made = reference.made, None
        if before is not None:
            # `end` waits, because earlier launches still use the old object.
            objects.end(before)
        word.value = 0
        if resource is None:
            return
        if reference.is_surface:
            reference.made = objects.new_surface(resource)
        else:
            reference.made = objects.new_texture(resource, reference.sampling)
        word.value = reference.made.allocation.start

    def module_ended(self, module: Module) -> None:
        """Called when a module ends: end its references."""
        for reference in self._taken(module):
            if reference.made is not None:
                self._machine.objects.end(reference.made)

    def forget(self, context: Context) -> None:
        """Drop the references of an ending context; their memory goes with the context."""
        for module in {module for module, _ in self._of.copy() if module.context is context}:
            self._taken(module)

    def _taken(self, module: Module) -> list[Reference]:
        """Remove and return the references of a module."""
        found = [self._of.pop(key) for key in self._of.copy() if key[0] is module]
        for reference in found:
            self._references.discard(reference.handle)
        return found


def with_mode(sampling: Sampling, axis: int, mode: int) -> Sampling:
    """The same sampling with another mode on one axis."""
    if not 0 <= axis < 3:
        raise DriverFailure(INVALID_VALUE, f"there is no dimension {axis}")
    modes = list(sampling.modes)
    modes[axis] = mode
    x, y, z = modes
    return replace(sampling, modes=(x, y, z))


def bound_handle(reference: Reference, kind: Kind) -> int:
    """The handle of a reference's array; INVALID_VALUE if none is bound."""
    resource = reference.resource
    if resource is None or resource.kind is not kind:
        raise DriverFailure(INVALID_VALUE, "the reference is not bound to memory of this kind")
    return resource.handle
