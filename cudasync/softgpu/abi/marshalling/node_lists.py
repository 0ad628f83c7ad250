"""Cellar. Lists of nodes and edges, as the driver's graph calls pass them.

As in CUDA, a list is written up to the caller's room. The rest of the room is filled with nulls,
and the number of written entries comes back.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import get_u64, need, put_u64
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    LOSSY_QUERY,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.graph import PLAIN
from cudasync.softgpu.core.memory.host_pages import is_mapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.graphs.graph import Edge, Graph, Node
    from cudasync.softgpu.core.machine import Machine

_EDGE_BYTES: Final = 8


def get_nodes(machine: Machine, address: int, count: int) -> list[Node]:
    """The nodes in a caller's list."""
    if not count:
        return []
    if not address or not is_mapped(address, 8 * count):
        raise DriverFailure(
            INVALID_VALUE, f"a list of {count} nodes cannot be at address {address:#x}"
        )
    handles = (ctypes.c_uint64 * count).from_address(address)
    return [machine.graphs.node(handle) for handle in handles]


def get_edges(address: int, count: int) -> list[Edge]:
    """The data of `count` edges; plain edges if `address` is null."""
    if not address:
        return [PLAIN] * count
    need(address, _EDGE_BYTES * count)
    data = (ctypes.c_uint8 * (_EDGE_BYTES * count)).from_address(address)
    return [(data[i], data[i + 1], data[i + 2]) for i in range(0, _EDGE_BYTES * count, _EDGE_BYTES)]


def get_dependencies(
    machine: Machine, graph: Graph, nodes: int, edges: int, count: int
) -> list[tuple[Node, Edge]]:
    """The nodes that a new node of a graph is to depend on, with their edges."""
    if count > len(graph.nodes):
        raise DriverFailure(INVALID_VALUE, "more dependencies than the graph has nodes")
    return list(zip(get_nodes(machine, nodes, count), get_edges(edges, count), strict=True))


def put_list(addresses: Sequence[int], count: int, rows: Sequence[Sequence[int]]) -> None:
    """Write columns of handles up to the caller's room. Null columns ask for the count."""
    if not any(addresses):
        put_u64(count, len(rows))
        return
    if not all(addresses):
        raise DriverFailure(INVALID_VALUE, "either all lists are null or none")
    room = get_u64(count)
    for column, address in enumerate(addresses):
        if not is_mapped(address, 8 * room):
            raise DriverFailure(
                INVALID_VALUE, f"a list with room for {room} cannot be at address {address:#x}"
            )
        handles = [row[column] for row in rows[:room]]
        listed = (ctypes.c_uint64 * len(handles))(*handles)
        need(address, 8 * room)
        ctypes.memmove(address, listed, 8 * len(handles))
        ctypes.memset(address + 8 * len(handles), 0, 8 * (room - len(handles)))
    put_u64(count, min(room, len(rows)))


def put_edges(address: int, room: int, edges: Sequence[Edge]) -> None:
    """Write the data of edges; LOSSY_QUERY if edges have data and the caller has no list for it."""
    if not address:
        if any(edge != PLAIN for edge in edges):
            raise DriverFailure(LOSSY_QUERY, "the edges have data: pass an array for it as well")
        return
    for index, edge in enumerate(edges[:room]):
        data = bytes(edge).ljust(_EDGE_BYTES, b"\0")
        need(address + _EDGE_BYTES * index, _EDGE_BYTES)
        ctypes.memmove(address + _EDGE_BYTES * index, data, _EDGE_BYTES)
