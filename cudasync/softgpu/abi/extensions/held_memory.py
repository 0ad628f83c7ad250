"""Cellar. A function that no driver has: the held bytes of freed memory, and their limit.

    CUresult cudasyncHeldBytes(cuuint64_t *held, cuuint64_t *most)

The numbers cover all devices, and pinned and managed memory. Either pointer may be null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.marshalling.pointers import put_u64
from cudasync.softgpu.abi.stub.registry import export

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine


@export("cudasyncHeldBytes", signature="cuuint64_t *, cuuint64_t *")
def cudasync_held_bytes(machine: Machine, held: int, most: int) -> None:
    quarantine = machine.quarantine
    if held:
        put_u64(held, quarantine.held_bytes)
    if most:
        put_u64(most, quarantine.most_bytes)
