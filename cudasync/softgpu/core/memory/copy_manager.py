"""Cellar. Operations on the contents of memory: copies and memsets, enqueued.

A pageable source is read at the call, a pinned source when the copy executes. So a program that
reuses a pinned buffer too early gives a wrong result. A copy to pageable memory is done on return,
as the CUDA driver API says; so is a copy from host memory to host memory. A large pageable source
is read once the stream has come there.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.memory.box_copies import HOST, BoxCopy, End
from cudasync.softgpu.core.memory.copy_commands import Copy, Fill, Place
from cudasync.softgpu.core.memory.row_copies import move_rows
from cudasync.softgpu.core.memory.staging import staging_buffer
from cudasync.softgpu.interface.poison import PATTERN

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.box_copies import Box
    from cudasync.softgpu.core.streams.streams import Stream


# An H200's driver stages so much pageable memory without a wait for the stream.
_STAGED_BYTES: Final = 64 << 10


class TransferManager:
    """The verbs behind the driver's copying and filling calls."""

    def __init__(self, machine: Machine) -> None:
        self._executor = machine.executor
        self._streams = machine.streams
        self._memory = machine.memory
        self._has_others = len(machine.devices) > 1
        self._peers = machine.peers

    def check_access(self, context: Context, *ends: Place) -> None:
        """INVALID_VALUE for memory of a pool without access for the context's device."""
        if not self._has_others:
            return
        for end in ends:
            found = end.allocation
            if found is None or found.pool is None:
                continue
            # The driver copies from and to the host, whatever kernels may do.
            if found.pool.device is None or found.pool.access(context.device):
                continue
            raise DriverFailure(
                INVALID_VALUE,
                f"device {context.device.ordinal} has no access to {found.describe()}",
            )

    def check_recorded(self, target: Place, source: Place) -> None:
        """NOT_SUPPORTED for a node that copies between devices without access to each other.

        For calls, the documentation says that the driver goes through the host; for nodes, it says
        nothing.
        """
        ends = [end.allocation for end in (target, source)]
        devices = [
            each.context.device
            for each in ends
            if each is not None and not each.kind.is_host and not each.kind.is_managed
        ]
        if len(devices) == 2 and devices[0] is not devices[1] and not self._peers.include(*devices):
            raise DriverFailure(
                NOT_SUPPORTED,
                f"a node cannot copy between devices {devices[0].ordinal} and "
                f"{devices[1].ordinal}, which have no access to each other's memory",
            )

    def copy(
        self,
        stream: Stream,
        target: Place,
        source: Place,
        size_bytes: int,
        *,
        is_peer: bool = False,
    ) -> Copy:
        """Enqueue a copy. A pageable source is read now, a pinned source when the copy executes.

        Blocks until the copy is done if its target is pageable, or both its ends are on the host;
        until earlier work of the stream is done if its source is large and pageable. In a copy
        between peers, each device accesses its own end, so the stream's device needs no access to
        pools.
        """
        return self.copy_rows(
            stream,
            target,
            source,
            size_bytes,
            rows=1,
            target_pitch=0,
            source_pitch=0,
            is_peer=is_peer,
        )

    def copy_rows(
        self,
        stream: Stream,
        target: Place,
        source: Place,
        size_bytes: int,
        *,
        rows: int,
        target_pitch: int,
        source_pitch: int,
        is_peer: bool = False,
    ) -> Copy:
        """Like `copy`, for `rows` rows of `size_bytes` each, `pitch` bytes apart."""
        if not is_peer:
            self.check_access(stream.context, target, source)
        if target_pitch == source_pitch == size_bytes or not size_bytes:
            size_bytes, rows = size_bytes * rows, 1
        # A captured copy reads all memory, also pageable, when the graph runs.
        captured = stream.capture is not None
        if captured:
            self.check_recorded(target, source)
        # Written out, because each copy comes here.
        there, here = target.allocation, source.allocation
        is_done = there is None or (there.kind.is_host and (here is None or here.kind.is_host))
        if here is None and size_bytes and rows and not captured:
            if size_bytes * rows > _STAGED_BYTES and not is_done:
                self._streams.come_to(stream)
            source = self._staged(source.address, size_bytes, rows, source_pitch)
            source_pitch = size_bytes
        command = Copy(
            stream,
            target,
            source,
            size_bytes,
            rows=rows,
            target_pitch=target_pitch,
            source_pitch=source_pitch,
        )
        self._executor.enqueue(command)
        if is_done and not captured:
            self._streams.finish(command)
        return command

    def copy_now(self, stream: Stream, target: Place, source: Place, size_bytes: int) -> None:
        """Copy, and return once that is done. A large pageable source is read in place."""
        there, here = target.allocation, source.allocation
        if (
            here is not None
            or there is None
            or there.kind.is_host
            or size_bytes <= _STAGED_BYTES
            or stream.capture is not None
        ):
            self._streams.finish(self.copy(stream, target, source, size_bytes))
            return
        self.check_access(stream.context, target)
        self._streams.come_to(stream)
        command = Copy(stream, target, Place(source.address, None, keep=True), size_bytes)
        try:
            self._executor.enqueue(command)
            self._streams.finish(command)
        except BaseException:
            # The caller may free the source now, and an interrupted copy still comes.
            if not command.is_done:
                command.source = self._staged(source.address, size_bytes)
                # Another thread may be reading the source at this moment.
                self._executor.settle_command(command)
            raise

    @staticmethod
    def _staged(address: int, size_bytes: int, rows: int = 1, pitch: int = 0) -> Place:
        """Rows of pageable memory as they are now, one behind the other."""
        staged = staging_buffer(size_bytes * rows)
        start = ctypes.addressof(staged)
        move_rows(start, address, (1, rows, size_bytes), (0, size_bytes), (0, pitch))
        return Place(start, None, staged)

    def copy_box(
        self,
        stream: Stream,
        box: Box,
        target: Place,
        source: Place,
        *,
        is_read_now: bool,
        is_peer: bool = False,
    ) -> BoxCopy:
        """Enqueue a copy of a box; its source is read at the call, or when the copy executes.

        A copy to pageable memory, or within the host's memory, is done on return.
        """
        if not is_peer:
            self.check_access(stream.context, target, source)
        captured = stream.capture is not None
        if captured:
            self.check_recorded(target, source)
        if is_read_now and box.size_bytes and not captured:
            staged = staging_buffer(box.size_bytes)
            there = Place(ctypes.addressof(staged), None, staged)
            compact = End(HOST, there.address, pitch=box.width, height=box.height)
            command = BoxCopy(stream, replace(box, target=compact), there, source)
            command.run()
            box, source = replace(box, source=compact), there
        command = BoxCopy(stream, box, target, source)
        self._executor.enqueue(command)
        is_done = target.is_pageable or (target.is_on_host and source.is_on_host)
        if is_done and box.size_bytes and not captured:
            self._streams.finish(command)
        return command

    def fill(
        self,
        stream: Stream,
        address: int,
        pattern: bytes,
        count: int,
        *,
        rows: int = 1,
        pitch: int = 0,
    ) -> Fill:
        """Enqueue a memset of `count` words in each of `rows` rows."""
        size_bytes = count * len(pattern)
        if address % len(pattern):
            raise DriverFailure(INVALID_VALUE, f"{address:#x} is not a multiple of the word size")
        if rows > 1 and pitch < size_bytes:
            raise DriverFailure(INVALID_VALUE, "the pitch is less than the bytes of a row")
        if pitch == size_bytes or not size_bytes:
            size_bytes, rows, pitch = size_bytes * rows, 1, 0
        whole = size_bytes + max(0, rows - 1) * pitch
        place = self._memory.place(address, whole)
        filling = Fill(stream, place, pattern, size_bytes, rows=rows, pitch=pitch)
        self._executor.enqueue(filling)
        return filling

    def discard(self, stream: Stream, address: int, size_bytes: int) -> None:
        """Enqueue a discard: the memory's contents are undefined until written, here poison."""
        first = address + address % 2
        self.fill(stream, first, PATTERN, max(0, address + size_bytes - first) // 2)
