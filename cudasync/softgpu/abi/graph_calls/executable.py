"""Cellar. Driver calls that instantiate graphs, launch them, and change executable graphs."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.node_structures import at
from cudasync.softgpu.abi.marshalling.pointers import need, offer_u64, put_u32, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import NOT_SUPPORTED, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_INSTANTIATE: Final = "CUgraphExec *, CUgraph, unsigned long long"
_INSTANTIATE_V1: Final = "CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t"
_UPLOAD_FLAG: Final = 2
# CUgraphInstantiateResult.
_SUCCESS, _ERROR, _INVALID_STRUCTURE, _UNSUPPORTED, _UNUSED = 0, 1, 2, 3, 5


class _InstantiateParams(ctypes.Structure):
    """CUDA_GRAPH_INSTANTIATE_PARAMS."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("upload_stream", ctypes.c_size_t),
        ("error_node", ctypes.c_size_t),
        ("result", ctypes.c_uint32),
    )


@export("cuGraphInstantiateWithFlags", signature=_INSTANTIATE)
@export("cuGraphInstantiate", 12000, _INSTANTIATE)
def cu_graph_instantiate(machine: Machine, made: int, graph: int, flags: int) -> None:
    need(made)
    graphs = machine.graphs
    put_u64(made, machine.executables.instantiate(graphs.get(graph), flags).handle)


@export("cuGraphInstantiate", 10000, _INSTANTIATE_V1)
@export("cuGraphInstantiate", 11000, _INSTANTIATE_V1)
def cu_graph_instantiate_v1(
    machine: Machine, made: int, graph: int, node: int, log: int, size: int
) -> None:
    offer_u64(node, 0)
    if log and size:
        need(log, 1)
        ctypes.memset(log, 0, 1)
    cu_graph_instantiate(machine, made, graph, 0)


@export("cuGraphInstantiateWithParams")
def cu_graph_instantiate_with_params(
    machine: Machine, made: int, graph: int, parameters: int
) -> None:
    need(made)
    params = at(_InstantiateParams, parameters)
    graphs = machine.graphs
    params.error_node, params.result = 0, _ERROR
    found = graphs.get(graph)
    if any(not condition.is_used for condition in found.conditions):
        params.result = _UNUSED
        machine.executables.instantiate(found, params.flags)
    if params.flags & _UPLOAD_FLAG:
        machine.streams.get(params.upload_stream)
    try:
        put_u64(made, machine.executables.instantiate(found, params.flags).handle)
    except DriverFailure as failure:
        params.result = _UNSUPPORTED if failure.code == NOT_SUPPORTED else _INVALID_STRUCTURE
        raise
    params.result = _SUCCESS


@export("cuGraphExecDestroy")
def cu_graph_exec_destroy(machine: Machine, executable: int) -> None:
    machine.captures.refuse_unsafe("the end of an executable graph")
    machine.executables.destroy(executable)


@export("cuGraphExecGetFlags")
def cu_graph_exec_get_flags(machine: Machine, executable: int, flags: int) -> None:
    put_u64(flags, machine.executables.get(executable).flags & ~_UPLOAD_FLAG)


@export("cuGraphExecGetId")
def cu_graph_exec_get_id(machine: Machine, executable: int, number: int) -> None:
    put_u32(number, machine.executables.get(executable).identity)


@export("cuGraphLaunch")
def cu_graph_launch(machine: Machine, executable: int, stream: int) -> None:
    machine.executables.launch(machine.executables.get(executable), machine.streams.get(stream))


@export("cuGraphUpload")
def cu_graph_upload(machine: Machine, executable: int, stream: int) -> None:
    machine.streams.get(stream)
    machine.executables.get(executable).upload()
