"""Kernels that print, and kernels that raise."""

from __future__ import annotations

import numpy as np
from numba import cuda


@cuda.jit
def greet(n):
    i = cuda.grid(1)
    if i < n:
        print("thread", i, "of", n)


@cuda.jit(debug=True, opt=False)
def checked(data, divisor):
    i = cuda.grid(1)
    if i == 3 and divisor == 0:
        raise ZeroDivisionError("nothing to divide by")
    data[i] = i


greet[1, 2](1)
cuda.synchronize()

data = np.zeros(8, np.int64)
checked[1, 8](data, 1)
assert (data == np.arange(8)).all()
said = ""
try:
    checked[1, 8](data, 0)
except ZeroDivisionError as error:
    said = str(error)
assert "nothing to divide by" in said
print("printing: a greeting, and an exception")
