"""CuPy's streams, events, callbacks, graphs, pools and pinned memory."""

from __future__ import annotations

import cupy as cp
import numpy as np

count = 4096
stream, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
began, ended = cp.cuda.Event(), cp.cuda.Event()
host = cp.cuda.alloc_pinned_memory(8 * count)
pinned = np.frombuffer(host, np.float64, count)
pinned[:] = np.arange(count)

x = cp.empty(count)
with stream:
    began.record()
    x.set(pinned, stream=stream)
    y = x * 2
    ended.record()
other.wait_event(ended)
with other:
    z = y + 1
other.synchronize()
assert (cp.asnumpy(z) == np.arange(count) * 2 + 1).all()
assert cp.cuda.get_elapsed_time(began, ended) >= 0
assert stream.done

told = []
stream.launch_host_func(told.append, "a host function")
stream.add_callback(lambda *arguments: told.append(arguments[1:]), "a callback")
stream.synchronize()
assert told == ["a host function", (0, "a callback")], told

with stream:
    stream.begin_capture()
    z = y * y
    z += 1
    graph = stream.end_capture()
y.fill(3)
cp.cuda.Device().synchronize()
for _ in range(2):
    graph.launch(stream)
stream.synchronize()
assert (cp.asnumpy(z) == 10).all()

pool = cp.get_default_memory_pool()
del x, y, z
pool.free_all_blocks()
assert pool.used_bytes() == 0
with cp.cuda.using_allocator(cp.cuda.MemoryAsyncPool().malloc):
    a = cp.arange(10)
    assert int(a.sum()) == 45
with cp.cuda.using_allocator(cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc):
    a = cp.arange(10)
    assert int(a.sum()) == 45
    kind = cp.cuda.runtime.pointerGetAttributes(a.data.ptr).type
    assert kind == cp.cuda.runtime.memoryTypeManaged

status = 0
try:
    cp.cuda.runtime.memset(8, 0, 8)
except cp.cuda.runtime.CUDARuntimeError as error:
    status = error.status
assert status == 1, status

print("streams: order, events, callbacks, a graph, three pools")
