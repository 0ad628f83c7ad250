"""Cellar. Driver calls that launch kernels, and those that query or set launch attributes."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Final

from cudasync.ptx.types import StateSpace
from cudasync.softgpu.abi.marshalling.kernel_arguments import pack
from cudasync.softgpu.abi.marshalling.pointers import get_u32, put_i32, put_u64, structure_at
from cudasync.softgpu.abi.stub.error_strings import fixed_address
from cudasync.softgpu.abi.stub.registry import export, refuses_values
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch, launch

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.modules.modules import Function
    from cudasync.softgpu.interface.launch import Dim3

# CUlaunchAttributeID.
_COOPERATIVE, _CLUSTER = 2, 4
# Far more than there are kinds of attributes.
_MOST_ATTRIBUTES: Final = 1024
_ATTRIBUTE_BYTES: Final = 72
_ATTRIBUTE_VALUE_OFFSET: Final = 8
# CUfunction_attribute.
_MAX_DYNAMIC_SHARED: Final = 8
_CARVEOUT: Final = 9

_NUMBER: Final = re.compile(r"\d+")

_string_at = ctypes.string_at


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint),
    )


@export("cuLaunchKernel")
def cu_launch_kernel(
    machine: Machine,
    function: int,
    grid_x: int,
    grid_y: int,
    grid_z: int,
    block_x: int,
    block_y: int,
    block_z: int,
    shared_bytes: int,
    stream: int,
    parameters: int,
    extra: int,
) -> None:
    target = machine.streams.live_streams.get(stream)
    kernel = machine.modules.live_functions.get(function)
    if target is not None and kernel is not None:
        plan = kernel.plan
        # A launch like the previous one goes straight to the executor.
        if (
            plan is not None
            and plan.context is target.context
            and not plan.context.error
            and plan.shape == (grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes)
        ):
            block = (
                plan.function.packing.pack(parameters)
                if parameters and not extra
                else pack(plan.function, parameters, extra)
            )
            machine.executor.enqueue(KernelLaunch(target, plan, block))
            return
    _launch(
        machine,
        function,
        (grid_x, grid_y, grid_z),
        (block_x, block_y, block_z),
        shared_bytes,
        stream,
        parameters,
        extra,
    )


def _launch(
    machine: Machine,
    function: int,
    grid: Dim3,
    block: Dim3,
    shared_bytes: int,
    stream: int,
    parameters: int,
    extra: int,
    *,
    is_cooperative: bool = False,
) -> None:
    target = machine.streams.get(stream)
    kernel = machine.modules.function(function, target.context)
    launch(
        machine,
        kernel,
        target,
        grid,
        block,
        shared_bytes,
        pack(kernel, parameters, extra),
        is_cooperative=is_cooperative,
    )


@export("cuLaunchCooperativeKernel")
def cu_launch_cooperative_kernel(
    machine: Machine,
    function: int,
    grid_x: int,
    grid_y: int,
    grid_z: int,
    block_x: int,
    block_y: int,
    block_z: int,
    shared_bytes: int,
    stream: int,
    parameters: int,
) -> None:
    _launch(
        machine,
        function,
        (grid_x, grid_y, grid_z),
        (block_x, block_y, block_z),
        shared_bytes,
        stream,
        parameters,
        0,
        is_cooperative=True,
    )


@export("cuLaunchKernelEx")
def cu_launch_kernel_ex(
    machine: Machine, config: int, function: int, parameters: int, extra: int
) -> None:
    c = structure_at(_LaunchConfig, config)
    is_cooperative = False
    if c.attribute_count > _MOST_ATTRIBUTES:
        raise DriverFailure(
            INVALID_VALUE,
            f"a launch has at most {_MOST_ATTRIBUTES} attributes, not {c.attribute_count}",
        )
    for index in range(c.attribute_count):
        is_cooperative = _read_attribute(c.attributes + _ATTRIBUTE_BYTES * index, is_cooperative)
    _launch(
        machine,
        function,
        (c.grid_x, c.grid_y, c.grid_z),
        (c.block_x, c.block_y, c.block_z),
        c.shared_bytes,
        c.stream,
        parameters,
        extra,
        is_cooperative=is_cooperative,
    )


def _read_attribute(attribute: int, is_cooperative: bool) -> bool:
    """Whether the launch is cooperative, given this attribute and the ones before.

    An attribute that would change a kernel's meaning otherwise is refused; hints about speed are
    accepted.
    """
    value = attribute + _ATTRIBUTE_VALUE_OFFSET
    kind = get_u32(attribute)
    if kind == _COOPERATIVE:
        return bool(get_u32(value))
    if kind == _CLUSTER and [get_u32(value + 4 * i) for i in range(3)] != [1, 1, 1]:
        raise DriverFailure(NOT_SUPPORTED, "thread block clusters are not supported")
    return is_cooperative


# Functions


def _attribute(function: Function, attribute: int) -> int:
    kernel = function.kernel
    module = function.module
    # The virtual architecture, as CUB reads it: 80 for compute_80.
    architecture = _NUMBER.search(module.text.target)
    capability = function.module.context.device.capability
    values = {
        0: kernel.max_threads,
        1: kernel.static_shared_bytes,
        2: sum(v.size for v in module.compiled.variables if v.space is StateSpace.CONST),
        3: kernel.local_bytes,
        4: 32,
        5: int(architecture[0]) if architecture else 0,
        6: capability.major * 10 + capability.minor,
        7: 0,
        _MAX_DYNAMIC_SHARED: function.dynamic_shared_limit,
        _CARVEOUT: function.carveout,
    }
    if attribute in values:
        return values[attribute]
    if 10 <= attribute <= 17:  # Clusters and later inventions: not there.
        return 0
    raise DriverFailure(INVALID_VALUE, f"there is no function attribute {attribute}")


@export("cuFuncGetAttribute")
def cu_func_get_attribute(machine: Machine, value: int, attribute: int, function: int) -> None:
    put_i32(value, _attribute(machine.modules.function(function), attribute))


@export("cuKernelGetAttribute")
def cu_kernel_get_attribute(
    machine: Machine, value: int, attribute: int, kernel: int, device: int
) -> None:
    context = machine.device(device).primary
    put_i32(value, _attribute(machine.modules.function(kernel, context), attribute))


def _percentage(value: int) -> int:
    if not -1 <= value <= 100:
        raise DriverFailure(INVALID_VALUE, f"a carveout is from -1 to 100 per cent, not {value}")
    return value


@export("cuFuncSetAttribute")
def cu_func_set_attribute(machine: Machine, function: int, attribute: int, value: int) -> None:
    found = machine.modules.function(function)
    if attribute == _MAX_DYNAMIC_SHARED:
        found.allow_dynamic_shared(value)
    elif attribute == _CARVEOUT:
        found.carveout = _percentage(value)
    else:
        raise DriverFailure(INVALID_VALUE, f"function attribute {attribute} cannot be set")


@export("cuKernelSetAttribute")
def cu_kernel_set_attribute(
    machine: Machine, attribute: int, value: int, kernel: int, device: int
) -> None:
    found = machine.modules.library_kernel(kernel)
    function = machine.modules.function(kernel, machine.device(device).primary)
    if attribute == _MAX_DYNAMIC_SHARED:
        function.allow_dynamic_shared(value)
        found.dynamic_shared_limit = value
    elif attribute == _CARVEOUT:
        function.carveout = _percentage(value)
    else:
        raise DriverFailure(INVALID_VALUE, f"function attribute {attribute} cannot be set")


@export("cuFuncSetCacheConfig")
def cu_func_set_cache_config(machine: Machine, function: int, _config: int) -> None:
    machine.modules.function(function)


@export("cuFuncSetSharedMemConfig")
def cu_func_set_shared_mem_config(machine: Machine, function: int, config: int) -> None:
    machine.modules.function(function)
    if config not in range(3):
        raise DriverFailure(INVALID_VALUE, f"there is no configuration {config} of banks")


@export("cuKernelSetCacheConfig")
def cu_kernel_set_cache_config(machine: Machine, kernel: int, _config: int, _device: int) -> None:
    machine.modules.library_kernel(kernel)


@export("cuFuncGetModule")
def cu_func_get_module(machine: Machine, module: int, function: int) -> None:
    put_u64(module, machine.modules.entry(function).module.handle)


@export("cuFuncGetName")
@refuses_values
def cu_func_get_name(machine: Machine, name: int, function: int) -> None:
    # Written first: if the call fails, older bindings still read the name.
    put_u64(name, fixed_address(""))
    put_u64(name, fixed_address(machine.modules.entry(function).name))


@export("cuFuncIsLoaded")
def cu_func_is_loaded(machine: Machine, state: int, function: int) -> None:
    machine.modules.function(function)
    put_i32(state, 1)


@export("cuFuncLoad")
def cu_func_load(machine: Machine, function: int) -> None:
    machine.modules.function(function)
