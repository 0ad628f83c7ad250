"""Cellar. Driver calls about modules, libraries, and the kernels and variables in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.image_pointers import file_at, image_at
from cudasync.softgpu.abi.marshalling.jit_options import JitOptions
from cudasync.softgpu.abi.marshalling.pointers import (
    get_text,
    need,
    offer_u64,
    put_i32,
    put_u32,
    put_u64,
)
from cudasync.softgpu.abi.stub.error_strings import fixed_address
from cudasync.softgpu.abi.stub.registry import export, refuses_values
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.modules.modules import Function

_LAZY_LOADING: Final = 2


# Modules


@export("cuModuleLoadData")
def cu_module_load_data(machine: Machine, module: int, image: int) -> None:
    need(module)
    put_u64(module, machine.modules.load(image_at(image, machine.capability)).handle)


@export("cuModuleLoadDataEx")
def cu_module_load_data_ex(
    machine: Machine, module: int, image: int, count: int, options: int, values: int
) -> None:
    need(module)
    with JitOptions(count, options, values):
        put_u64(module, machine.modules.load(image_at(image, machine.capability)).handle)


@export("cuModuleLoadFatBinary")
def cu_module_load_fat_binary(machine: Machine, module: int, image: int) -> None:
    cu_module_load_data(machine, module, image)


@export("cuModuleLoad")
def cu_module_load(machine: Machine, module: int, path: int) -> None:
    need(module)
    put_u64(module, machine.modules.load(file_at(path)).handle)


@export("cuModuleUnload")
def cu_module_unload(machine: Machine, module: int) -> None:
    machine.modules.unload(module)


@export("cuModuleGetLoadingMode")
def cu_module_get_loading_mode(_machine: Machine, mode: int) -> None:
    put_i32(mode, _LAZY_LOADING)


@export("cuModuleGetFunction")
def cu_module_get_function(machine: Machine, function: int, module: int, name: int) -> None:
    need(function)
    modules = machine.modules
    put_u64(function, modules.find_function(modules.get(module), get_text(name)).handle)


@export("cuModuleGetFunctionCount")
def cu_module_get_function_count(machine: Machine, count: int, module: int) -> None:
    put_u32(count, len(machine.modules.get(module).entries))


@export("cuModuleEnumerateFunctions")
def cu_module_enumerate_functions(
    machine: Machine, functions: int, count: int, module: int
) -> None:
    found = machine.modules.get(module).entries
    for index, function in enumerate(found[:count]):
        put_u64(functions + 8 * index, function.handle)


@export("cuModuleGetGlobal")
def cu_module_get_global(machine: Machine, address: int, size: int, module: int, name: int) -> None:
    modules = machine.modules
    variable = modules.find_variable(modules.get(module), get_text(name))
    offer_u64(address, variable.start)
    offer_u64(size, variable.size_bytes)


# Libraries


@export("cuLibraryLoadData")
def cu_library_load_data(
    machine: Machine,
    library: int,
    image: int,
    jit_options: int,
    jit_values: int,
    jit_count: int,
    _library_options: int,
    _library_values: int,
    _library_count: int,
) -> None:
    need(library)
    with JitOptions(jit_count, jit_options, jit_values):
        put_u64(library, machine.modules.load_library(image_at(image, machine.capability)).handle)


@export("cuLibraryLoadFromFile")
def cu_library_load_from_file(
    machine: Machine,
    library: int,
    path: int,
    jit_options: int,
    jit_values: int,
    jit_count: int,
    _library_options: int,
    _library_values: int,
    _library_count: int,
) -> None:
    need(library)
    with JitOptions(jit_count, jit_options, jit_values):
        put_u64(library, machine.modules.load_library(file_at(path)).handle)


@export("cuLibraryUnload")
def cu_library_unload(machine: Machine, library: int) -> None:
    machine.modules.unload_library(library)


@export("cuLibraryGetKernel")
def cu_library_get_kernel(machine: Machine, kernel: int, library: int, name: int) -> None:
    need(kernel)
    modules = machine.modules
    put_u64(kernel, modules.find_kernel(modules.library(library), get_text(name)).handle)


@export("cuLibraryGetKernelCount")
def cu_library_get_kernel_count(machine: Machine, count: int, library: int) -> None:
    put_u32(count, len(machine.modules.library(library).kernels))


@export("cuLibraryEnumerateKernels")
def cu_library_enumerate_kernels(machine: Machine, kernels: int, count: int, library: int) -> None:
    found = machine.modules.library(library).kernels.values()
    for index, kernel in enumerate(list(found)[:count]):
        put_u64(kernels + 8 * index, kernel.handle)


@export("cuLibraryGetModule")
def cu_library_get_module(machine: Machine, module: int, library: int) -> None:
    modules = machine.modules
    put_u64(module, modules.module_of(modules.library(library), machine.context()).handle)


@export("cuLibraryGetGlobal")
def cu_library_get_global(
    machine: Machine, address: int, size: int, library: int, name: int
) -> None:
    modules = machine.modules
    module = modules.module_of(modules.library(library), machine.context())
    variable = modules.find_variable(module, get_text(name))
    offer_u64(address, variable.start)
    offer_u64(size, variable.size_bytes)


@export("cuKernelGetFunction")
def cu_kernel_get_function(machine: Machine, function: int, kernel: int) -> None:
    put_u64(function, machine.modules.function(kernel).handle)


@export("cuKernelGetLibrary")
def cu_kernel_get_library(machine: Machine, library: int, kernel: int) -> None:
    put_u64(library, machine.modules.library_kernel(kernel).library.handle)


@export("cuKernelGetName")
@refuses_values
def cu_kernel_get_name(machine: Machine, name: int, kernel: int) -> None:
    # Written first: if the call fails, older bindings still read the name.
    put_u64(name, fixed_address(""))
    put_u64(name, fixed_address(machine.modules.library_kernel(kernel).name))


# Parameters


def _put_parameter(function: Function, index: int, offset: int, size: int) -> None:
    if index >= len(function.places):
        raise DriverFailure(INVALID_VALUE, f"kernel {function.name} has no parameter {index}")
    start, length = function.places[index]
    put_u64(offset, start)
    offer_u64(size, length)


@export("cuFuncGetParamInfo")
@refuses_values
def cu_func_get_param_info(
    machine: Machine, function: int, index: int, offset: int, size: int
) -> None:
    _put_parameter(machine.modules.function(function), index, offset, size)


@export("cuKernelGetParamInfo")
@refuses_values
def cu_kernel_get_param_info(
    machine: Machine, kernel: int, index: int, offset: int, size: int
) -> None:
    _put_parameter(machine.modules.function(kernel), index, offset, size)


@export("cuFuncGetParamCount")
@refuses_values
def cu_func_get_param_count(machine: Machine, function: int, count: int) -> None:
    put_u64(count, len(machine.modules.function(function).places))


@export("cuKernelGetParamCount")
@refuses_values
def cu_kernel_get_param_count(machine: Machine, kernel: int, count: int) -> None:
    put_u64(count, len(machine.modules.function(kernel).places))
