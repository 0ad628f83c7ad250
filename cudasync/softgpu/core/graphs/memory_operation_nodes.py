"""Cellar. Nodes that wait for and write words in memory, one after the other."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from cudasync.softgpu.core.driver_types.result_codes import NOT_SUPPORTED, DriverFailure
from cudasync.softgpu.core.graphs.node_parameters import NodeType, Nothing, Work
from cudasync.softgpu.core.streams.memory_operations import WaitValue, WriteValue

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.memory.copy_commands import Place
    from cudasync.softgpu.core.memory.memory_manager import MemoryManager
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.streams import Stream

# CUstreamBatchMemOpType, and the union of its parameters: each 48 bytes long.
_WAIT_32, _WRITE_32, _WAIT_64, _WRITE_64, _BARRIER = 1, 2, 4, 5, 6
_LAYOUT: Final = struct.Struct("<I4xQQI20x")
OPERATION_BYTES: Final = _LAYOUT.size
_SIZES: Final = {_WAIT_32: 4, _WRITE_32: 4, _WAIT_64: 8, _WRITE_64: 8}


@dataclass(frozen=True, slots=True)
class BatchWork(Work):
    """The operations in the driver's layout, and the places of their words."""

    kind: ClassVar[NodeType] = NodeType.BATCH_MEM_OP

    operations: bytes
    places: tuple[Place | None, ...]
    where: Context
    flags: int = 0

    @property
    def context(self) -> Context:
        return self.where

    def commands(self, stream: Stream) -> list[Command]:
        """A command for each operation, as in a stream, so that checks and explorations know what
        each waits for and writes."""
        made: list[Command] = []
        operations = _LAYOUT.iter_unpack(self.operations)
        for (kind, _, value, flags), place in zip(operations, self.places, strict=True):
            if place is None:
                # A barrier, which needs no command: a stream is in order anyway.
                continue
            size = _SIZES[kind]
            value &= (1 << 8 * size) - 1
            if kind in (_WAIT_32, _WAIT_64):
                made.append(WaitValue(stream, place, value, flags, size))
            else:
                made.append(WriteValue(stream, place, value, size))
        return made or [Nothing(stream, self.describe())]

    def describe(self) -> str:
        return f"{len(self.places)} waits and writes"


def batch(memory: MemoryManager, operations: bytes, where: Context, flags: int = 0) -> BatchWork:
    """The work of operations in CUDA's own layout."""
    places: list[Place | None] = []
    for kind, address, _, _ in _LAYOUT.iter_unpack(operations):
        if kind not in _SIZES and kind != _BARRIER:
            raise DriverFailure(NOT_SUPPORTED, f"memory operation {kind} is not supported")
        places.append(memory.place(address, _SIZES[kind]) if kind in _SIZES else None)
    return BatchWork(operations, tuple(places), where, flags)


def of_command(command: WaitValue | WriteValue) -> BatchWork:
    """The work of one operation of a stream."""
    is_wait = isinstance(command, WaitValue)
    kind = (_WAIT_64 if is_wait else _WRITE_64) - (3 if command.size_bytes == 4 else 0)
    flags = command.comparison if isinstance(command, WaitValue) else 0
    operation = _LAYOUT.pack(kind, command.place.address, command.value, flags)
    return BatchWork(operation, (command.place,), command.stream.context)
