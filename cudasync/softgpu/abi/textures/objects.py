"""Cellar. Driver calls that create, destroy and describe texture and surface objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import need, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.abi.textures.object_structures import (
    resource_at,
    sampling_at,
    view_at,
    view_of,
    write_resource,
    write_sampling,
    write_view,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@export("cuTexObjectCreate")
def cu_tex_object_create(
    machine: Machine, handle: int, resource: int, sampling: int, view: int
) -> None:
    need(handle)
    made = machine.objects.create_texture(
        resource_at(resource), sampling_at(sampling), view_at(view)
    )
    put_u64(handle, made)


@export("cuTexObjectDestroy")
def cu_tex_object_destroy(machine: Machine, handle: int) -> None:
    machine.objects.destroy_texture(handle)


@export("cuTexObjectGetResourceDesc")
def cu_tex_object_get_resource_desc(machine: Machine, resource: int, handle: int) -> None:
    write_resource(resource, machine.objects.textures.get(handle).resource)


@export("cuTexObjectGetTextureDesc")
def cu_tex_object_get_texture_desc(machine: Machine, sampling: int, handle: int) -> None:
    write_sampling(sampling, machine.objects.textures.get(handle).sampling)


@export("cuTexObjectGetResourceViewDesc")
def cu_tex_object_get_resource_view_desc(machine: Machine, view: int, handle: int) -> None:
    write_view(view, view_of(machine, handle))


@export("cuSurfObjectCreate")
def cu_surf_object_create(machine: Machine, handle: int, resource: int) -> None:
    need(handle)
    put_u64(handle, machine.objects.create_surface(resource_at(resource)))


@export("cuSurfObjectDestroy")
def cu_surf_object_destroy(machine: Machine, handle: int) -> None:
    machine.objects.destroy_surface(handle)


@export("cuSurfObjectGetResourceDesc")
def cu_surf_object_get_resource_desc(machine: Machine, resource: int, handle: int) -> None:
    write_resource(resource, machine.objects.surfaces.get(handle).resource)
