"""Floor 5. Reductions of two parts, by name, and the dtypes that each one takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudasync import xp
from cudasync.array.dtypes.supported import supported

NAMES = ("sum", "prod", "min", "max", "mean")
_NUMBERS = {
    "sum": xp.add,
    "mean": xp.add,
    "prod": xp.multiply,
    "min": xp.minimum,
    "max": xp.maximum,
}
_TRUTHS = {"min": xp.logical_and, "max": xp.logical_or}


def checked(op: Any, dtype: np.dtype[Any]) -> str:
    """The name of a reduction that takes `dtype`.

    ValueError for an unknown name, TypeError for a dtype that the reduction does not take.
    """
    if op not in NAMES:
        raise ValueError(f"op= must be one of {', '.join(NAMES)}, not {op!r}")
    try:
        kind = supported(dtype).kind
    except NotImplementedError as error:
        raise TypeError(str(error)) from None
    if op == "mean" and kind != "f":
        raise TypeError(f"mean takes floats, not {dtype}: use op='sum' and divide")
    if kind == "b" and op not in _TRUTHS:
        raise TypeError(f"{op} does not take bool: use min (all) or max (any)")
    return str(op)


def combine(op: str, x: Any, y: Any, out: Any) -> None:
    """Push `out = x (op) y`; the mean is the sum until `finish`."""
    table = _TRUTHS if x.dtype == np.bool_ else _NUMBERS
    table[op](x, y, out=out)


def finish(op: str, out: Any, size: int) -> None:
    """Push the last step, once `out` has the parts of all ranks."""
    if op == "mean":
        xp.divide(out, size, out=out)
