"""C++ compiled by Program, launched on a stream, buffers from the device's memory resource."""

from __future__ import annotations

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

SOURCE = """
template <typename T>
__global__ void vector_add(const T *a, const T *b, T *c, size_t n)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        c[i] = a[i] + b[i];
}
"""

device = Device()
device.set_current()
stream = device.create_stream()

options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
program = Program(SOURCE, code_type="c++", options=options)
module = program.compile("cubin", name_expressions=("vector_add<float>", "vector_add<double>"))

pinned = LegacyPinnedMemoryResource()
for dtype, name in ((np.float32, "vector_add<float>"), (np.float64, "vector_add<double>")):
    kernel = module.get_kernel(name)
    n = 5000
    size = n * np.dtype(dtype).itemsize
    hosts = [pinned.allocate(size) for _ in range(3)]
    a, b, c = (np.from_dlpack(host).view(dtype) for host in hosts)
    a[:], b[:], c[:] = np.arange(n), 2 * np.arange(n), -1
    d_a, d_b, d_c = (device.allocate(size, stream=stream) for _ in range(3))
    d_a.copy_from(hosts[0], stream=stream)
    d_b.copy_from(hosts[1], stream=stream)
    config = LaunchConfig(grid=16, block=128)
    launch(stream, config, kernel, d_a, d_b, d_c, np.uint64(n))
    d_c.copy_to(hosts[2], stream=stream)
    stream.sync()
    assert (c == 3 * np.arange(n)).all()
    for buffer in (d_a, d_b, d_c):
        buffer.close(stream)
stream.sync()
stream.close()
print("vector_add: two instances of a template")
