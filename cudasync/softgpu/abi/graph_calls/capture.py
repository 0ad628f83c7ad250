"""Cellar. Driver calls that capture streams."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.node_lists import get_dependencies
from cudasync.softgpu.abi.marshalling.pointers import offer_u64, put_i32, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    ILLEGAL_STATE,
    INVALID_VALUE,
    LOSSY_QUERY,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.graph import PLAIN
from cudasync.softgpu.core.graphs.stream_capture import Status

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

# CUstreamCaptureMode.
_GLOBAL = 0
# CUstreamUpdateCaptureDependencies_flags.
_ADD, _SET = 0, 1

_INFO_V1: Final = (
    "CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, CUgraphNode const **, size_t *"
)
_INFO: Final = (
    "CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, CUgraphNode const **, "
    "CUgraphEdgeData const **, size_t *"
)
_UPDATE_V1: Final = "CUstream, CUgraphNode *, size_t, unsigned int"
_UPDATE: Final = "CUstream, CUgraphNode *, CUgraphEdgeData const *, size_t, unsigned int"


@export("cuStreamBeginCapture", 10000, "CUstream")
def cu_stream_begin_capture_v1(machine: Machine, stream: int) -> None:
    cu_stream_begin_capture(machine, stream, _GLOBAL)


@export("cuStreamBeginCapture", 10010, "CUstream, CUstreamCaptureMode")
def cu_stream_begin_capture(machine: Machine, stream: int, mode: int) -> None:
    machine.captures.begin(machine.streams.get(stream), mode)


@export("cuStreamBeginCaptureToGraph")
def cu_stream_begin_capture_to_graph(
    machine: Machine, stream: int, graph: int, nodes: int, edges: int, count: int, mode: int
) -> None:
    graphs = machine.graphs
    target = graphs.get(graph)
    tips = get_dependencies(machine, target, nodes, edges, count)
    graphs.begin_capture_to(machine.streams.get(stream), mode, target, tips)


@export("cuStreamEndCapture")
def cu_stream_end_capture(machine: Machine, stream: int, graph: int) -> None:
    captured = machine.streams.get(stream)
    if not graph:
        capture = machine.captures.of(captured)
        if capture is not None and not capture.owns_graph:
            # The capture is to a graph that the program has.
            machine.graphs.end_capture(captured)
            return
    put_u64(graph, 0)
    put_u64(graph, machine.graphs.end_capture(captured).handle)


@export("cuStreamGetCaptureInfo", 11030, _INFO_V1)
def cu_stream_get_capture_info_v2(
    machine: Machine, stream: int, status: int, number: int, graph: int, nodes: int, count: int
) -> None:
    cu_stream_get_capture_info(machine, stream, status, number, graph, nodes, 0, count)


@export("cuStreamGetCaptureInfo", 10010, "CUstream, CUstreamCaptureStatus *, cuuint64_t *")
def cu_stream_get_capture_info_v1(machine: Machine, stream: int, status: int, number: int) -> None:
    cu_stream_get_capture_info(machine, stream, status, number, 0, 0, 0, 0)


@export("cuStreamGetCaptureInfo", 12030, _INFO)
def cu_stream_get_capture_info(
    machine: Machine,
    stream: int,
    status: int,
    number: int,
    graph: int,
    nodes: int,
    edges: int,
    count: int,
) -> None:
    put_i32(status, Status.NONE)
    if edges and not nodes:
        raise DriverFailure(INVALID_VALUE, "edge data needs an array of nodes as well")
    capture = machine.captures.of(machine.streams.get(stream))
    put_i32(status, Status.NONE if capture is None else capture.status)
    if capture is None or capture.complaint:
        return
    offer_u64(number, capture.identity)
    if graph or nodes:
        machine.graphs.adopt_captured(capture)
    offer_u64(graph, capture.graph.handle)
    tips = capture.tips[machine.streams.get(stream)]
    if nodes and not edges and any(edge != PLAIN for edge in tips.values()):
        raise DriverFailure(LOSSY_QUERY, "the edges have data: pass an array for it as well")
    handles = (ctypes.c_uint64 * max(1, len(tips)))(*(node.handle for node in tips))
    data = (ctypes.c_uint8 * max(8, 8 * len(tips)))()
    for index, edge in enumerate(tips.values()):
        data[8 * index : 8 * index + 3] = list(edge)
    capture.kept = handles, data
    offer_u64(nodes, ctypes.addressof(handles))
    offer_u64(edges, ctypes.addressof(data))
    offer_u64(count, len(tips))


@export("cuStreamUpdateCaptureDependencies", 11030, _UPDATE_V1)
def cu_stream_update_capture_dependencies_v1(
    machine: Machine, stream: int, nodes: int, count: int, flags: int
) -> None:
    cu_stream_update_capture_dependencies(machine, stream, nodes, 0, count, flags)


@export("cuStreamUpdateCaptureDependencies", 12030, _UPDATE)
def cu_stream_update_capture_dependencies(
    machine: Machine, stream: int, nodes: int, edges: int, count: int, flags: int
) -> None:
    found = machine.streams.get(stream)
    capture = machine.captures.of(found)
    if capture is None:
        raise DriverFailure(ILLEGAL_STATE, f"{found.name} is not being captured")
    capture.check()
    if flags not in (_ADD, _SET):
        raise DriverFailure(INVALID_VALUE, f"unknown flags {flags:#x}")
    tips = dict(get_dependencies(machine, capture.graph, nodes, edges, count))
    if any(node.graph is not capture.graph for node in tips):
        raise DriverFailure(INVALID_VALUE, "a node belongs to another graph")
    capture.tips[found] = {**capture.tips[found], **tips} if flags == _ADD else tips
