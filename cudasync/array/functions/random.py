"""Floor 4, functions. Random numbers as functions of a key, the first number and the index.

All operands are uint64. An element depends on its own number alone: not on the device, the grid or
other elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudasync.array.functions.function import Function
from cudasync.array.functions.philox import PART, Numbers, below, drawn
from cudasync.array.functions.quantile import quantile

_DRAWN = "philox({0}, {1} + {2}, 0).low"
# The middle of one of 2^52 parts of (0, 1): a number u of 53 bits, and so is 1 - u.
_INSIDE = f"((double)({_DRAWN} >> 12) + 0.5) * {2.0**-52!r}"


def _single(key: Any, start: Any, index: Numbers) -> Any:
    return (drawn(key, start, index) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


def _double(key: Any, start: Any, index: Numbers) -> Any:
    return (drawn(key, start, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _normal(key: Any, start: Any, index: Numbers) -> Any:
    inside = ((drawn(key, start, index) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    for at in range(0, len(inside), PART):
        inside[at : at + PART] = quantile(inside[at : at + PART])
    return inside


SINGLE = Function("random_float32", 3, {"u": f"(float)({_DRAWN} >> 40) * {2.0**-24!r}f"}, _single)
DOUBLE = Function("random_float64", 3, {"u": f"(double)({_DRAWN} >> 11) * {2.0**-53!r}"}, _double)
NORMAL = Function("random_normal", 3, {"u": f"random_quantile({_INSIDE})"}, _normal)
BITS = Function("random_bits", 3, {"u": _DRAWN}, drawn)
BELOW = Function("random_below", 4, {"u": "random_below({0}, {1} + {3}, {2})"}, below)
