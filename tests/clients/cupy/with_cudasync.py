"""Arrays of CuPy's and of cudasync's in one program, both ways, without a copy."""

from __future__ import annotations

import cupy as cp
import numpy as np

import cudasync as cs

x = cp.arange(1000, dtype=cp.float32)
cp.cuda.Device().synchronize()
mine = cs.from_dlpack(x)
doubled = mine * 2 + 1
theirs = cp.from_dlpack(doubled)
assert (cp.asnumpy(theirs) == np.arange(1000) * 2 + 1).all()
theirs += 1
cp.cuda.Device().synchronize()
assert float(doubled[10]) == 22

print("with_cudasync: arrays went there and back")
