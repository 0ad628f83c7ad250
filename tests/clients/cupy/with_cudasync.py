"""Arrays of CuPy and of cudasync in one program, exchanged both ways without a copy."""

from __future__ import annotations

import cupy as cp
import numpy as np

import cudasync as cs

count = 1000
x = cp.arange(count, dtype=cp.float32)
cp.cuda.Device().synchronize()

# By DLPack, there and back: the memory is shared.
mine = cs.from_dlpack(x)
doubled = mine * 2 + 1
theirs = cp.from_dlpack(doubled)
assert (cp.asnumpy(theirs) == np.arange(count) * 2 + 1).all()
theirs += 1
cp.cuda.Device().synchronize()
assert float(doubled[10]) == 22

# By the CUDA array interface.
viewed = cp.asarray(doubled)
assert viewed.data.ptr == theirs.data.ptr
cs.copy(doubled, x)
cs.waitall()
assert (cp.asnumpy(viewed) == np.arange(count)).all()

# A CuPy kernel on a cudasync array.
plus = cp.ElementwiseKernel("float32 a", "float32 b", "b = a + 1", "plus_one")
plus(viewed, viewed)
cp.cuda.Device().synchronize()
assert float(doubled[5]) == 6

# On a CuPy stream, in order and without a wait on the host.
stream = cp.cuda.Stream(non_blocking=True)
doubled *= 3
cs.hand_over(doubled, to=stream)
with stream:
    viewed += 2
cs.take_over(doubled, after=stream)
doubled += 1
assert (doubled.numpy() == (np.arange(count) + 1) * 3 + 3).all()

print("with_cudasync: arrays went there and back")
