"""Several devices, peer access, and exchange by DLPack and the CUDA array interface."""

from __future__ import annotations

import cupy as cp
import numpy as np

last = cp.cuda.runtime.getDeviceCount() - 1
x = cp.arange(100, dtype=cp.int64)
# The default streams of two devices do not wait for each other.
cp.cuda.Device(0).synchronize()
with cp.cuda.Device(last):
    y = cp.arange(100, dtype=cp.int64) * 2
    moved = cp.asarray(x) + y
assert moved.device.id == last
assert (cp.asnumpy(moved) == np.arange(100) * 3).all()
if last:
    assert cp.cuda.runtime.deviceCanAccessPeer(0, last) in (0, 1)

again = cp.from_dlpack(x)
again += 1
assert int(x[0]) == 1
assert again.data.ptr == x.data.ptr


class Foreign:
    """An array of another library."""

    __cuda_array_interface__ = x.__cuda_array_interface__


viewed = cp.asarray(Foreign())
assert viewed.data.ptr == x.data.ptr

name = cp.cuda.runtime.getDeviceProperties(0)["name"]
assert name == cp.cuda.Device(0).attributes.get("name", name)
free, total = cp.cuda.Device(0).mem_info
assert 0 < free <= total

print(f"devices: {last + 1} of them, and three ways to share memory")
