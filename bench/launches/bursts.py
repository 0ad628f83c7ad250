"""Bursts of one small kernel, in three shapes, for bench_launch and bench_peers_gpu.

The kernel adds one array to another. A burst is a list of (source, target), numbers of arrays, in
push order. `chain`: one array, each launch behind the last. `independent`: as many arrays as
launches. `fan`: one launch on array 0, many launches that read it, one that overwrites their
inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from cuda.bindings import driver

import cudasync as cs
from bench.driver.baseline import checked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from bench.harness.measurement import Session

    Burst = tuple[tuple[int, int], ...]

BLOCK = 128
WORKERS = 2

PTX = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry add_to(.param .u64 source, .param .u64 target)
{
    .reg .u32 %r_index, %r_block, %r_size, %r_left, %r_right;
    .reg .u64 %rd_source, %rd_target, %rd_offset;
    ld.param.u64 %rd_source, [source];
    ld.param.u64 %rd_target, [target];
    cvta.to.global.u64 %rd_source, %rd_source;
    cvta.to.global.u64 %rd_target, %rd_target;
    mov.u32 %r_index, %tid.x;
    mov.u32 %r_block, %ctaid.x;
    mov.u32 %r_size, %ntid.x;
    mad.lo.u32 %r_index, %r_block, %r_size, %r_index;
    mul.wide.u32 %rd_offset, %r_index, 4;
    add.u64 %rd_source, %rd_source, %rd_offset;
    add.u64 %rd_target, %rd_target, %rd_offset;
    ld.global.u32 %r_left, [%rd_source];
    ld.global.u32 %r_right, [%rd_target];
    add.u32 %r_right, %r_right, %r_left;
    st.global.u32 [%rd_target], %r_right;
    ret;
}
"""


def prepared(session: Session) -> tuple[cs.Engine, cs.Kernel]:
    """An engine, current until the session closes, and the kernel, loaded on the first device."""
    device = cs.Device(0)
    device.use()
    session.device = f"{device.name}, compute capability {device.compute_capability}"
    kernel = cs.Module.from_ptx(PTX, device=device, file="bench/launches/bursts.py").kernel(
        "add_to"
    )
    engine = cs.Engine(workers=WORKERS)
    session.closing.callback(engine.close)
    session.closing.enter_context(cs.use(engine))
    return engine, kernel


def chain(launches: int) -> Burst:
    return ((0, 0),) * launches


def independent(launches: int) -> Burst:
    return tuple((number, number) for number in range(launches))


def fan(launches: int) -> Burst:
    readers = tuple((0, number) for number in range(1, launches - 1))
    return ((0, 0), *readers, (0, 0))


SHAPES = {"chain": chain, "independent": independent, "fan": fan}


def arrays_of(burst: Burst) -> int:
    """The number of arrays in a burst."""
    return 1 + max(max(pair) for pair in burst)


def first_values(burst: Burst, elements: int) -> np.ndarray:
    """The first values of the arrays, one row for each."""
    count = arrays_of(burst)
    return np.arange(1, count * elements + 1, dtype=np.uint32).reshape(count, elements)


def checksum_of(rows: Sequence[np.ndarray]) -> int:
    """The checksum of the arrays' contents."""
    total = 0
    for row in rows:
        total = crc32(np.ascontiguousarray(row).tobytes(), total)
    return total


@dataclass(frozen=True)
class Step:
    """One launch placed by hand: its stream, and the launches of other streams that it awaits."""

    source: int
    target: int
    stream: int
    awaits: tuple[int, ...]
    is_awaited: bool


def placed(burst: Burst, streams: int) -> list[Step]:
    """The burst on several streams, placed by hand: chains keep their stream, the rest alternates.

    A launch waits only for launches that its stream is not ordered behind anyway.
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    homes: list[int] = []
    awaits: list[list[int]] = []
    for number, (source, target) in enumerate(burst):
        before = {writer[array] for array in (source, target) if array in writer}
        before.update(readers.get(target, ()))
        newest = max(before, default=None)
        is_tail = newest is not None and homes[newest] not in homes[newest + 1 :]
        home = homes[newest] if newest is not None and is_tail else number % streams
        # The latest launch of each other stream stands for the earlier ones.
        youngest = {homes[earlier]: earlier for earlier in sorted(before)}
        awaits.append([earlier for place, earlier in youngest.items() if place != home])
        homes.append(home)
        readers.setdefault(source, []).append(number)
        writer[target], readers[target] = number, []
    awaited = {earlier for each in awaits for earlier in each}
    return [
        Step(source, target, homes[number], tuple(awaits[number]), number in awaited)
        for number, (source, target) in enumerate(burst)
    ]


class Raw:
    """The kernel and the arrays through `cuda.bindings` alone, with prepared arguments."""

    def __init__(self, closing: ExitStack, burst: Burst, elements: int, kernel: cs.Kernel) -> None:
        self._first = first_values(burst, elements)
        self._buffers = [cs.DeviceBuffer(row.nbytes, kernel.device) for row in self._first]
        for buffer in self._buffers:
            closing.callback(buffer.close)
        self.kernel = kernel
        self._function = driver.CUfunction(int(kernel.get()))
        self._grid = elements // BLOCK
        self._kept: list[object] = []
        self.reset()

    def reset(self) -> None:
        for buffer, row in zip(self._buffers, self._first, strict=True):
            checked(driver.cuMemcpyHtoD(buffer.ptr, row.ctypes.data, row.nbytes))

    def arguments(self, source: int, target: int, stream: driver.CUstream) -> tuple:
        """The prepared arguments of `cuLaunchKernel`. This object keeps the packed values alive."""
        prepared = self.kernel.pack(self.pointers(source, target))
        self._kept.append(prepared)
        shape = (self._grid, 1, 1, BLOCK, 1, 1, 0)
        return (self._function, *shape, stream, prepared.block.address, 0)

    def pointers(self, source: int, target: int) -> tuple[cs.DeviceBuffer, cs.DeviceBuffer]:
        """The arguments of a launch."""
        return self._buffers[source], self._buffers[target]

    def rows(self) -> list[np.ndarray]:
        """The present contents of the arrays."""
        rows = [np.empty_like(row) for row in self._first]
        for buffer, row in zip(self._buffers, rows, strict=True):
            checked(driver.cuMemcpyDtoH(row.ctypes.data, buffer.ptr, row.nbytes))
        return rows
