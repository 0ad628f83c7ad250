"""A CuPy array that another process writes through its handle."""

from __future__ import annotations

import multiprocessing
import sys

import cupy as cp

runtime = cp.cuda.runtime


def write(handle: bytes, count: int) -> None:
    address = runtime.ipcOpenMemHandle(handle)
    memory = cp.cuda.UnownedMemory(address, 4 * count, None)
    there = cp.ndarray((count,), cp.int32, cp.cuda.MemoryPointer(memory, 0))
    there += 7
    cp.cuda.Device().synchronize()
    runtime.ipcCloseMemHandle(address)


if __name__ == "__main__":
    count = 100
    pointer = cp.cuda.runtime.malloc(4 * count)
    memory = cp.cuda.UnownedMemory(pointer, 4 * count, None)
    mine = cp.ndarray((count,), cp.int32, cp.cuda.MemoryPointer(memory, 0))
    mine[:] = cp.arange(count)
    cp.cuda.Device().synchronize()
    started = multiprocessing.get_context("spawn").Process(
        target=write, args=(runtime.ipcGetMemHandle(pointer), count)
    )
    started.start()
    started.join()
    assert started.exitcode == 0, started.exitcode
    assert (mine == cp.arange(count) + 7).all()
    try:
        runtime.ipcOpenMemHandle(bytes(64))
    except runtime.CUDARuntimeError as error:
        print(error, file=sys.stderr)
    else:
        raise AssertionError("a handle of nothing was opened")
    print("processes: one wrote what another had allocated")
