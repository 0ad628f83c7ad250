"""Cellar. Driver calls that copy boxes, within one context's memory or between two contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.node_structures import CopyParams, at, context_of, read_box
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.memory.box_copies import BoxCopy, place_of

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_DEFAULT = 0


def _copy(machine: Machine, description: int, stream: int, *, is_peer: bool = False) -> BoxCopy:
    box = read_box(machine, at(CopyParams, description))
    memory = machine.memory
    source = place_of(memory, box.source, box)
    return machine.transfers.copy_box(
        machine.streams.get(stream),
        box,
        place_of(memory, box.target, box),
        source,
        is_read_now=source.is_pageable,
        is_peer=is_peer,
    )


@export("cuMemcpy3DAsync")
def cu_memcpy_3d_async(machine: Machine, description: int, stream: int) -> None:
    _copy(machine, description, stream)


@export("cuMemcpy3D")
def cu_memcpy_3d(machine: Machine, description: int) -> None:
    machine.streams.finish(_copy(machine, description, _DEFAULT))


@export("cuMemcpy3DPeerAsync")
def cu_memcpy_3d_peer_async(machine: Machine, description: int, stream: int) -> None:
    params = at(CopyParams, description)
    # The address determines the context; the given contexts only have to exist.
    context_of(machine, params.source.reserved)
    context_of(machine, params.target.reserved)
    _copy(machine, description, stream, is_peer=True)


@export("cuMemcpy3DPeer")
def cu_memcpy_3d_peer(machine: Machine, description: int) -> None:
    cu_memcpy_3d_peer_async(machine, description, _DEFAULT)
