"""Cellar. Driver calls about references: their resources, and how textures are read."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import (
    get_text,
    need,
    offer_u64,
    put_f32,
    put_i32,
    put_u32,
    put_u64,
    structure_at,
)
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.abi.textures.structures import ArrayDescriptor
from cudasync.softgpu.core.driver_types.device_limits import TEXTURE_ALIGNMENT
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.textures.formats import check_channels, format_of
from cudasync.softgpu.core.textures.references import bound_handle, with_mode
from cudasync.softgpu.core.textures.resources import Kind, Resource

if TYPE_CHECKING:
    from typing import Any

    from cudasync.softgpu.core.machine import Machine

_OVERRIDE_FORMAT: Final = 1


@export("cuModuleGetTexRef")
def cu_module_get_tex_ref(machine: Machine, reference: int, module: int, name: int) -> None:
    need(reference)
    of = machine.modules.get(module)
    found = machine.references.of_module(of, get_text(name), is_surface=False)
    put_u64(reference, found.handle)


@export("cuModuleGetSurfRef")
def cu_module_get_surf_ref(machine: Machine, reference: int, module: int, name: int) -> None:
    need(reference)
    of = machine.modules.get(module)
    found = machine.references.of_module(of, get_text(name), is_surface=True)
    put_u64(reference, found.handle)


@export("cuTexRefCreate")
def cu_tex_ref_create(machine: Machine, reference: int) -> None:
    need(reference)
    put_u64(reference, machine.references.create().handle)


@export("cuTexRefDestroy")
def cu_tex_ref_destroy(machine: Machine, reference: int) -> None:
    machine.references.destroy(reference)


@export("cuParamSetTexRef")
def cu_param_set_tex_ref(machine: Machine, function: int, unit: int, reference: int) -> None:
    # As in CUDA since version 3, a kernel finds its references by their names.
    machine.modules.function(function)
    machine.references.get(reference)
    if unit != -1:
        raise DriverFailure(INVALID_VALUE, f"the unit must be CU_PARAM_TR_DEFAULT, not {unit}")


# The resource of a reference


@export("cuTexRefSetArray")
def cu_tex_ref_set_array(machine: Machine, reference: int, array: int, flags: int) -> None:
    _bind_array(machine, reference, Kind.ARRAY, array, flags)


@export("cuTexRefSetMipmappedArray")
def cu_tex_ref_set_mipmapped_array(
    machine: Machine, reference: int, mipmap: int, flags: int
) -> None:
    _bind_array(machine, reference, Kind.MIPMAPPED, mipmap, flags)


def _bind_array(machine: Machine, reference: int, kind: Kind, handle: int, flags: int) -> None:
    found = machine.references.get(reference)
    if handle and flags != _OVERRIDE_FORMAT:
        raise DriverFailure(INVALID_VALUE, "the flags must be CU_TRSA_OVERRIDE_FORMAT")
    machine.references.bind(found, Resource(kind, handle) if handle else None)


@export("cuTexRefSetAddress")
def cu_tex_ref_set_address(
    machine: Machine, offset: int, reference: int, address: int, size: int
) -> None:
    found = machine.references.get(reference)
    skipped = address % TEXTURE_ALIGNMENT
    if skipped and not offset:
        raise DriverFailure(
            INVALID_VALUE,
            f"{address:#x} is not a multiple of {TEXTURE_ALIGNMENT}: pass an offset pointer",
        )
    resource = None
    if address and size:
        what = found.format, found.channels
        resource = Resource(Kind.LINEAR, 0, address - skipped, *what, size + skipped)
    machine.references.bind(found, resource)
    offer_u64(offset, skipped)


@export("cuTexRefSetAddress2D")
def cu_tex_ref_set_address_2d(
    machine: Machine, reference: int, descriptor: int, address: int, pitch: int
) -> None:
    found = machine.references.get(reference)
    what = structure_at(ArrayDescriptor, descriptor)
    sizes = what.width, what.height, pitch
    resource = Resource(Kind.PITCHED, 0, address, what.format, what.channels, 0, *sizes)
    machine.references.bind(found, resource)


@export("cuTexRefGetArray")
def cu_tex_ref_get_array(machine: Machine, array: int, reference: int) -> None:
    put_u64(array, bound_handle(machine.references.get(reference), Kind.ARRAY))


@export("cuTexRefGetMipmappedArray")
def cu_tex_ref_get_mipmapped_array(machine: Machine, mipmap: int, reference: int) -> None:
    put_u64(mipmap, bound_handle(machine.references.get(reference), Kind.MIPMAPPED))


@export("cuTexRefGetAddress")
def cu_tex_ref_get_address(machine: Machine, address: int, reference: int) -> None:
    resource = machine.references.get(reference).resource
    if resource is None or not resource.address:
        raise DriverFailure(INVALID_VALUE, "the reference is not bound to linear memory")
    put_u64(address, resource.address)


@export("cuSurfRefSetArray")
def cu_surf_ref_set_array(machine: Machine, reference: int, array: int, flags: int) -> None:
    found = machine.references.get(reference, is_surface=True)
    if flags:
        raise DriverFailure(INVALID_VALUE, f"the flags must be 0, not {flags:#x}")
    machine.references.bind(found, Resource(Kind.ARRAY, array) if array else None)


@export("cuSurfRefGetArray")
def cu_surf_ref_get_array(machine: Machine, array: int, reference: int) -> None:
    found = machine.references.get(reference, is_surface=True)
    put_u64(array, bound_handle(found, Kind.ARRAY))


# How a texture is read


@export("cuTexRefSetFormat")
def cu_tex_ref_set_format(machine: Machine, reference: int, code: int, channels: int) -> None:
    found = machine.references.get(reference)
    check_channels(channels)
    format_of(code)
    found.format, found.channels = code, channels
    if found.resource is not None and found.resource.kind is Kind.LINEAR:
        found.resource = replace(found.resource, format=code, channels=channels)
    machine.references.set(found, found.sampling)


@export("cuTexRefGetFormat")
def cu_tex_ref_get_format(machine: Machine, code: int, channels: int, reference: int) -> None:
    found = machine.references.get(reference)
    resource = found.resource
    what = found.format, found.channels
    if resource is not None and resource.kind is Kind.ARRAY:
        shape = machine.arrays.copied(resource.handle).shape
        what = shape.format.code, shape.channels
    put_i32(code, what[0])
    put_i32(channels, what[1])


def _set(machine: Machine, reference: int, **changed: Any) -> None:
    found = machine.references.get(reference)
    machine.references.set(found, replace(found.sampling, **changed))


@export("cuTexRefSetAddressMode")
def cu_tex_ref_set_address_mode(machine: Machine, reference: int, axis: int, mode: int) -> None:
    found = machine.references.get(reference)
    machine.references.set(found, with_mode(found.sampling, axis, mode))


@export("cuTexRefGetAddressMode")
def cu_tex_ref_get_address_mode(machine: Machine, mode: int, reference: int, axis: int) -> None:
    sampling = machine.references.get(reference).sampling
    with_mode(sampling, axis, 0)
    put_i32(mode, sampling.modes[axis])


@export("cuTexRefSetFilterMode")
def cu_tex_ref_set_filter_mode(machine: Machine, reference: int, mode: int) -> None:
    _set(machine, reference, filter=mode)


@export("cuTexRefGetFilterMode")
def cu_tex_ref_get_filter_mode(machine: Machine, mode: int, reference: int) -> None:
    put_i32(mode, machine.references.get(reference).sampling.filter)


@export("cuTexRefSetMipmapFilterMode")
def cu_tex_ref_set_mipmap_filter_mode(machine: Machine, reference: int, mode: int) -> None:
    _set(machine, reference, level_filter=mode)


@export("cuTexRefGetMipmapFilterMode")
def cu_tex_ref_get_mipmap_filter_mode(machine: Machine, mode: int, reference: int) -> None:
    put_i32(mode, machine.references.get(reference).sampling.level_filter)


@export("cuTexRefSetMipmapLevelBias")
def cu_tex_ref_set_mipmap_level_bias(machine: Machine, reference: int, bias: float) -> None:
    _set(machine, reference, bias=bias)


@export("cuTexRefGetMipmapLevelBias")
def cu_tex_ref_get_mipmap_level_bias(machine: Machine, bias: int, reference: int) -> None:
    put_f32(bias, machine.references.get(reference).sampling.bias)


@export("cuTexRefSetMipmapLevelClamp")
def cu_tex_ref_set_mipmap_level_clamp(
    machine: Machine, reference: int, least: float, most: float
) -> None:
    _set(machine, reference, least_level=least, most_level=most)


@export("cuTexRefGetMipmapLevelClamp")
def cu_tex_ref_get_mipmap_level_clamp(
    machine: Machine, least: int, most: int, reference: int
) -> None:
    sampling = machine.references.get(reference).sampling
    put_f32(least, sampling.least_level)
    put_f32(most, sampling.most_level)


@export("cuTexRefSetMaxAnisotropy")
def cu_tex_ref_set_max_anisotropy(machine: Machine, reference: int, most: int) -> None:
    _set(machine, reference, most_anisotropy=most)


@export("cuTexRefGetMaxAnisotropy")
def cu_tex_ref_get_max_anisotropy(machine: Machine, most: int, reference: int) -> None:
    put_i32(most, machine.references.get(reference).sampling.most_anisotropy)


@export("cuTexRefSetBorderColor")
def cu_tex_ref_set_border_color(machine: Machine, reference: int, colour: int) -> None:
    need(colour, 16)
    r, g, b, a = (ctypes.c_float * 4).from_address(colour)
    _set(machine, reference, border=(r, g, b, a))


@export("cuTexRefGetBorderColor")
def cu_tex_ref_get_border_color(machine: Machine, colour: int, reference: int) -> None:
    for number, value in enumerate(machine.references.get(reference).sampling.border):
        put_f32(colour + 4 * number, value)


@export("cuTexRefSetFlags")
def cu_tex_ref_set_flags(machine: Machine, reference: int, flags: int) -> None:
    _set(machine, reference, flags=flags)


@export("cuTexRefGetFlags")
def cu_tex_ref_get_flags(machine: Machine, flags: int, reference: int) -> None:
    put_u32(flags, machine.references.get(reference).sampling.flags)
