"""Memory resources: the device's pool, page-locked memory, managed memory; copies between them."""

from __future__ import annotations

import numpy as np
from cuda.core import Buffer, Device, DeviceMemoryResource, LegacyPinnedMemoryResource
from cuda.core.utils import StridedMemoryView

device = Device()
device.set_current()
stream = device.create_stream()

pool = DeviceMemoryResource(device)
assert pool.is_device_accessible
assert not pool.is_host_accessible
pinned = LegacyPinnedMemoryResource()
assert pinned.is_host_accessible

n = 1000
source, target = pinned.allocate(8 * n), pinned.allocate(8 * n)
x, y = (np.from_dlpack(buffer).view(np.float64) for buffer in (source, target))
x[:] = np.random.default_rng(0).normal(size=n)
y[:] = 0

left = pool.allocate(8 * n, stream=stream)
right = device.allocate(8 * n, stream=stream)
assert left.size == right.size == 8 * n
assert left.device_id == device.device_id
left.copy_from(source, stream=stream)
right.copy_from(left, stream=stream)
right.copy_to(target, stream=stream)
stream.sync()
assert (x == y).all()

left.fill(0x3F, stream=stream)
left.copy_to(target, stream=stream)
stream.sync()
assert (y.view(np.uint8) == 0x3F).all()

# Another owner's memory, as a buffer of cuda.core.
borrowed = Buffer.from_handle(int(right.handle), 8 * n, owner=right)
borrowed.copy_to(target, stream=stream)
stream.sync()
assert (x == y).all()
view = StridedMemoryView.from_dlpack(source, stream_ptr=-1)
assert view.shape == (8 * n,)

for buffer in (left, right):
    buffer.close(stream)
stream.sync()
print("memory_resources: a pool, page-locked memory, a borrowed buffer")
