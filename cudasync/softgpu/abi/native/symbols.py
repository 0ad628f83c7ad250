"""Cellar, abi. Runtime functions that take the symbol of a device variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import need, put_u64
from cudasync.softgpu.abi.native.registration import REGISTRATIONS
from cudasync.softgpu.abi.runtime.table import entries, runtime_function
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_INVALID_DIRECTION: Final = 21
_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE, _DEFAULT = 1, 2, 3, 4
_TO: Final = (_HOST_TO_DEVICE, _DEVICE_TO_DEVICE, _DEFAULT)
_FROM: Final = (_DEVICE_TO_HOST, _DEVICE_TO_DEVICE, _DEFAULT)


@runtime_function("cudaGetSymbolAddress", "pp")
def cuda_get_symbol_address(machine: Machine, address: int, symbol: int) -> None:
    need(address)
    put_u64(address, REGISTRATIONS.variable(machine, symbol).start)


@runtime_function("cudaGetSymbolSize", "pp")
def cuda_get_symbol_size(machine: Machine, size: int, symbol: int) -> None:
    need(size)
    put_u64(size, REGISTRATIONS.variable(machine, symbol).size_bytes)


def _place(
    machine: Machine, symbol: int, size: int, offset: int, direction: int, allowed: tuple[int, ...]
) -> int:
    """The address within a variable where a copy begins."""
    if direction not in allowed:
        raise DriverFailure(_INVALID_DIRECTION, f"direction {direction} does not fit this copy")
    variable = REGISTRATIONS.variable(machine, symbol)
    if offset + size > variable.size_bytes:
        raise DriverFailure(
            INVALID_VALUE,
            f"{size} bytes at offset {offset} pass the {variable.size_bytes} of {variable.name}",
        )
    return variable.start + offset


def _runtime(name: str, machine: Machine, *arguments: int) -> int | None:
    return entries()[name].call(machine, *arguments)


@runtime_function("cudaMemcpyToSymbol", "ppzzi")
def cuda_memcpy_to_symbol(
    machine: Machine, symbol: int, source: int, size: int, offset: int, direction: int
) -> int | None:
    target = _place(machine, symbol, size, offset, direction, _TO)
    return _runtime("cudaMemcpy", machine, target, source, size, direction)


@runtime_function("cudaMemcpyToSymbolAsync", "ppzzip")
def cuda_memcpy_to_symbol_async(
    machine: Machine, symbol: int, source: int, size: int, offset: int, direction: int, stream: int
) -> int | None:
    target = _place(machine, symbol, size, offset, direction, _TO)
    return _runtime("cudaMemcpyAsync", machine, target, source, size, direction, stream)


@runtime_function("cudaMemcpyFromSymbol", "ppzzi")
def cuda_memcpy_from_symbol(
    machine: Machine, target: int, symbol: int, size: int, offset: int, direction: int
) -> int | None:
    source = _place(machine, symbol, size, offset, direction, _FROM)
    return _runtime("cudaMemcpy", machine, target, source, size, direction)


@runtime_function("cudaMemcpyFromSymbolAsync", "ppzzip")
def cuda_memcpy_from_symbol_async(
    machine: Machine, target: int, symbol: int, size: int, offset: int, direction: int, stream: int
) -> int | None:
    source = _place(machine, symbol, size, offset, direction, _FROM)
    return _runtime("cudaMemcpyAsync", machine, target, source, size, direction, stream)


# Nodes of graphs


@runtime_function("cudaGraphAddMemcpyNodeToSymbol", "pppzppzzi")
def cuda_graph_add_memcpy_node_to_symbol(machine: Machine, *arguments: int) -> int | None:
    node, graph, before, count, symbol, source, size, offset, direction = arguments
    target = _place(machine, symbol, size, offset, direction, _TO)
    given = (node, graph, before, count, target, source, size, direction)
    return _runtime("cudaGraphAddMemcpyNode1D", machine, *given)


@runtime_function("cudaGraphAddMemcpyNodeFromSymbol", "pppzppzzi")
def cuda_graph_add_memcpy_node_from_symbol(machine: Machine, *arguments: int) -> int | None:
    node, graph, before, count, target, symbol, size, offset, direction = arguments
    source = _place(machine, symbol, size, offset, direction, _FROM)
    given = (node, graph, before, count, target, source, size, direction)
    return _runtime("cudaGraphAddMemcpyNode1D", machine, *given)


@runtime_function("cudaGraphMemcpyNodeSetParamsToSymbol", "pppzzi")
def cuda_graph_memcpy_node_set_params_to_symbol(machine: Machine, *arguments: int) -> int | None:
    node, symbol, source, size, offset, direction = arguments
    target = _place(machine, symbol, size, offset, direction, _TO)
    given = (node, target, source, size, direction)
    return _runtime("cudaGraphMemcpyNodeSetParams1D", machine, *given)


@runtime_function("cudaGraphMemcpyNodeSetParamsFromSymbol", "pppzzi")
def cuda_graph_memcpy_node_set_params_from_symbol(machine: Machine, *arguments: int) -> int | None:
    node, target, symbol, size, offset, direction = arguments
    source = _place(machine, symbol, size, offset, direction, _FROM)
    given = (node, target, source, size, direction)
    return _runtime("cudaGraphMemcpyNodeSetParams1D", machine, *given)


@runtime_function("cudaGraphExecMemcpyNodeSetParamsToSymbol", "ppppzzi")
def cuda_graph_exec_memcpy_node_set_params_to_symbol(
    machine: Machine, *arguments: int
) -> int | None:
    executable, node, symbol, source, size, offset, direction = arguments
    target = _place(machine, symbol, size, offset, direction, _TO)
    given = (executable, node, target, source, size, direction)
    return _runtime("cudaGraphExecMemcpyNodeSetParams1D", machine, *given)


@runtime_function("cudaGraphExecMemcpyNodeSetParamsFromSymbol", "ppppzzi")
def cuda_graph_exec_memcpy_node_set_params_from_symbol(
    machine: Machine, *arguments: int
) -> int | None:
    executable, node, target, symbol, size, offset, direction = arguments
    source = _place(machine, symbol, size, offset, direction, _FROM)
    given = (executable, node, target, source, size, direction)
    return _runtime("cudaGraphExecMemcpyNodeSetParams1D", machine, *given)
