"""Streams with options, events that measure and order, a kernel's attributes."""

from __future__ import annotations

import numpy as np
from cuda.core import (
    Device,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    StreamOptions,
    launch,
)

SOURCE = r"""
extern "C" __global__ void ramp(int *data, int n)
{
    extern __shared__ int room[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    room[threadIdx.x] = i;
    __syncthreads();
    if (i < n) data[i] = room[threadIdx.x];
}

extern "C" __global__ void add(int *data, int n, int value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += value;
}
"""

device = Device(0)
device.set_current()
assert device.compute_capability >= (7, 0)
assert device.properties.warp_size == 32
assert device.name

first = device.create_stream(options=StreamOptions(nonblocking=True, priority=0))
second = device.create_stream()
assert first.is_nonblocking
assert first.device.device_id == 0

options = ProgramOptions(arch=f"compute_{device.arch}", std="c++17")
module = Program(SOURCE, "c++", options=options).compile("ptx")
ramp, add = module.get_kernel("ramp"), module.get_kernel("add")
assert ramp.num_arguments == 2
assert ramp.attributes.max_threads_per_block >= 256
occupancy = ramp.occupancy.max_active_blocks_per_multiprocessor(256, 1024)
assert occupancy > 0

n = 3000
buffer = device.allocate(4 * n, stream=first)
host = LegacyPinnedMemoryResource().allocate(4 * n)
view = np.from_dlpack(host).view(np.int32)
view[:] = -1

grid = (n + 255) // 256
start = first.record(options=EventOptions(timing_enabled=True))
launch(first, LaunchConfig(grid=grid, block=256, shmem_size=1024), ramp, buffer, np.int32(n))
ready = first.record()
second.wait(ready)
launch(
    second, LaunchConfig(grid=(grid, 1), block=(256, 1, 1)), add, buffer, np.int32(n), np.int32(5)
)
first.wait(second)
buffer.copy_to(host, stream=first)
end = first.record(options=EventOptions(timing_enabled=True))
end.sync()
assert end.is_done
assert end - start > 0
assert (view == np.arange(n) + 5).all()
buffer.close(first)
second.sync()
print("streams_and_events: joined twice, timed once")
