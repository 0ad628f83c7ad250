"""cuda.core's Device in typical use: its properties, several kinds of memory, one wait."""

from __future__ import annotations

import numpy as np
from cuda.bindings import driver
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    PinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)
from cuda.core.utils import StridedMemoryView

SOURCE = r"""
extern "C" __global__ void add(float* data, float what, size_t count) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count) data[i] += what;
}
"""
COUNT = 1000
BYTES = 4 * COUNT


def describe(device):
    assert device.name
    assert len(device.pci_bus_id.split(":")) == 3
    assert device.compute_capability >= (7, 0)
    properties = device.properties
    names = [name for name in dir(properties) if not name.startswith("_")]
    assert all(getattr(properties, name) is not None for name in names)
    assert properties.max_threads_per_block >= 256
    return len(names)


def let_kernels_use(pool, device):
    """Memory of a pool of the host is for copies until a device is given access."""
    grant = driver.CUmemAccessDesc()
    grant.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    grant.location.id = device.device_id
    grant.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    (code,) = driver.cuMemPoolSetAccess(driver.CUmemoryPool(int(pool.handle)), [grant], 1)
    assert code == driver.CUresult.CUDA_SUCCESS, code


def main():
    device = Device()
    device.set_current()
    known = describe(device)
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    kernel = Program(SOURCE, "c++", options=options).compile("cubin").get_kernel("add")
    config = LaunchConfig(grid=(COUNT + 127) // 128, block=128)

    streams = [device.create_stream() for _ in range(3)]
    pools = [LegacyPinnedMemoryResource(), PinnedMemoryResource(), ManagedMemoryResource()]
    let_kernels_use(pools[1], device)
    buffers = []
    for number, (stream, pool) in enumerate(zip(streams, pools, strict=True)):
        buffer = pool.allocate(BYTES, stream=stream)
        stream.sync()
        values = np.from_dlpack(buffer).view(np.float32)
        values[:] = number
        for _ in range(3):
            launch(stream, config, kernel, buffer, np.float32(number), np.uint64(COUNT))
        buffers.append((buffer, values))
    device.sync()
    for number, (_, values) in enumerate(buffers):
        assert (values == 4 * number).all()

    target = device.allocate(BYTES, stream=streams[2])
    target.copy_from(buffers[2][0], stream=streams[2])
    view = StridedMemoryView.from_buffer(target, shape=(COUNT,), dtype=np.dtype(np.float32))
    assert view.is_device_accessible
    assert view.shape == (COUNT,)
    back = pools[0].allocate(BYTES)
    target.copy_to(back, stream=streams[2])
    device.sync()
    assert (np.from_dlpack(back).view(np.float32) == 8).all()
    print(f"whole_device: {known} properties, three kinds of memory, one wait")


if __name__ == "__main__":
    main()
