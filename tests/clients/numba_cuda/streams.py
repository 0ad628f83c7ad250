"""Streams, events, pinned and mapped arrays, deferred clean-up."""

from __future__ import annotations

import numpy as np
from numba import cuda


@cuda.jit
def scale(data, factor):
    i = cuda.grid(1)
    if i < data.size:
        data[i] *= factor


n = 10_000
blocks = (n + 255) // 256
left, right = cuda.stream(), cuda.stream()
start, middle, end = cuda.event(), cuda.event(), cuda.event()

x = cuda.pinned_array(n, np.float32)
x[:] = np.arange(n)
y = cuda.pinned_array_like(x)

start.record(left)
d_x = cuda.to_device(x, stream=left)
scale[blocks, 256, left](d_x, 2)
middle.record(left)
middle.wait(right)
scale[blocks, 256, right](d_x, 3)
d_x.copy_to_host(y, stream=right)
end.record(right)
end.synchronize()
assert (y == 6 * np.arange(n, dtype=np.float32)).all()
assert end.query()
assert cuda.event_elapsed_time(start, end) > 0

mapped = cuda.mapped_array(64, np.int64, stream=left)
mapped[:] = 5
scale[1, 64, left](mapped, 4)
left.synchronize()
assert (mapped == 20).all()

plain = np.ones(n)
with cuda.pinned(plain):
    d_plain = cuda.to_device(plain, stream=left)
    scale[blocks, 256, left](d_plain, 7)
    d_plain.copy_to_host(plain, stream=left)
    left.synchronize()
assert (plain == 7).all()

with left.auto_synchronize():
    d_plain.copy_to_host(plain, stream=left)
assert (plain == 7).all()

with cuda.defer_cleanup():
    del d_x, d_plain
print("streams: joined by an event, pinned, mapped")
