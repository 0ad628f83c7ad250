"""An all-reduce of two devices' arrays: by the communicator, and written by hand.

By hand, each device copies the other's part of its own half, adds, and copies the sum back. This is
two copies and an addition on each device's stream, with two events between the streams.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.checkout import ROOT

if TYPE_CHECKING:
    from contextlib import ExitStack

BLOCK = 256
KERNELS = ROOT / "ptx" / "kernels" / "arithmetic_f32.ptx"


def numbers(length: int, device: int) -> np.ndarray:
    return (np.arange(length) % 1000 + device).astype(np.float32)


class ByHand:
    """Streams, events, peer copies and a kernel; buffers are made once."""

    name = "copies and adds by hand"

    def __init__(self, closing: ExitStack, length: int) -> None:
        self._length, half = length, length // 2
        self._streams = [cs.Stream(device) for device in (0, 1)]
        self._added = [cs.Event(device) for device in (0, 1)]
        modules = [cs.Module.from_file(KERNELS, device=device) for device in (0, 1)]
        self._adds = [module.kernel("add_f32") for module in modules]
        self._buffers = [cs.DeviceBuffer(4 * length, device) for device in (0, 1)]
        self._others = [cs.DeviceBuffer(4 * half, device) for device in (0, 1)]
        for each in (*self._streams, *self._added, *self._buffers, *self._others):
            closing.callback(each.close)
        # Indexed by the device that holds the half, then by the device that adds it up.
        self._halves = [
            [buffer.view((half,), np.float32, offset_bytes=4 * half * at) for at in (0, 1)]
            for buffer in self._buffers
        ]
        self._grid = (-(-half // BLOCK),)
        self._half = np.uint32(half)
        self._fill([np.zeros(length, np.float32)] * 2)

    def _fill(self, rows: list[np.ndarray]) -> None:
        for buffer, row, stream in zip(self._buffers, rows, self._streams, strict=True):
            cs.memcpy_async(buffer.view((self._length,), np.float32), row, stream=stream)
            stream.synchronize()

    def run(self) -> None:
        for here in (0, 1):
            stream, own = self._streams[here], self._halves[here][here]
            taken = self._others[here]
            cs.memcpy_async(taken, self._halves[1 - here][here], stream=stream)
            cs.launch(
                self._adds[here],
                grid=self._grid,
                block=(BLOCK,),
                args=(own, taken, own, self._half),
                stream=stream,
            )
            stream.record(self._added[here])
        for here in (0, 1):
            # This device's copy read the bytes before its own event, and now they are overwritten
            # there.
            stream = self._streams[here]
            stream.wait(self._added[1 - here])
            other = self._halves[here][1 - here]
            cs.memcpy_async(other, self._halves[1 - here][1 - here], stream=stream)
        for stream in self._streams:
            stream.synchronize()

    def checksum(self) -> int:
        self._fill([numbers(self._length, device) for device in (0, 1)])
        self.run()
        found = zlib.crc32(b"")
        for buffer, stream in zip(self._buffers, self._streams, strict=True):
            row = np.empty(self._length, np.float32)
            cs.memcpy_async(row, buffer.view((self._length,), np.float32), stream=stream)
            stream.synchronize()
            found = zlib.crc32(row.tobytes(), found)
        self._fill([np.zeros(self._length, np.float32)] * 2)
        return found


class Ours:
    """The same all-reduce by the communicator, in place."""

    name = "local communicator"

    def __init__(self, closing: ExitStack, length: int) -> None:
        self._length = length
        self._comm = closing.enter_context(cs.distributed.init("local", devices=[0, 1]))
        self._arrays = self._comm.each(
            lambda rank, device: cs.zeros(length, np.float32, device=device)
        )
        closing.callback(self._arrays.clear)
        cs.waitall()

    def run(self) -> None:
        self._comm.all_reduce(self._arrays).wait()

    def checksum(self) -> int:
        for device, array in enumerate(self._arrays):
            cs.copy(array, numbers(self._length, device))
        self.run()
        found = zlib.crc32(b"")
        for array in self._arrays:
            found = zlib.crc32(array.numpy().tobytes(), found)
            array[:] = 0
        cs.waitall()
        return found
