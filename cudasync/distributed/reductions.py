"""Floor 5. Reductions of two parts, by name, and the dtypes that each one takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudasync import xp
from cudasync.array.allocation import Allocation
from cudasync.array.dtypes.supported import supported
from cudasync.array.elementwise.operation import Operation
from cudasync.array.elementwise.operations import OPERATIONS
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.memory.pool import Block
from cudasync.driver import Device
from cudasync.driver.memory.peer_access import gets_peer_access
from cudasync.engine import engine
from cudasync.graph.recorder import Recorder

NAMES = ("sum", "prod", "min", "max", "mean")


def _by_peers(name: str) -> Operation:
    return Operation(name, OPERATIONS[name].build, by_peers=True)


_SUM = _by_peers("add")
_NUMBERS = {
    "sum": _SUM,
    "mean": _SUM,
    "prod": _by_peers("multiply"),
    "min": _by_peers("minimum"),
    "max": _by_peers("maximum"),
}
_TRUTHS = {"min": _by_peers("logical_and"), "max": _by_peers("logical_or")}


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
    """Push `out = x (op) y`; the mean is the sum until `finish`.

    `x` and `y` are beside `out`, or such that `can_read(out, ...)` is true.
    """
    table = _TRUTHS if x.dtype == np.bool_ else _NUMBERS
    table[op].into((x, y), out, user_frame())


def can_read(out: Any, x: Any) -> bool:
    """True if `combine` may read `x` where it is, to write `out`.

    Another device's memory is read by peer access, which this enables, if cudasync allocated it.
    Passes over a graph move computations to other devices, so recorded ones never do this.
    """
    if any(step % x.dtype.itemsize for step in x.strides):
        # No kernel reads such elements.
        return False
    if x.device == out.device:
        return True
    memory = x._allocation
    return (
        isinstance(x.device, Device)
        and isinstance(out.device, Device)
        and isinstance(memory, (Allocation, Block))
        and not isinstance(engine(), Recorder)
        and gets_peer_access(out.device, x.device)
        and memory.is_open_to_peers
    )


def finish(op: str, out: Any, size: int) -> None:
    """Push the last step, once `out` has the parts of all ranks."""
    if op == "mean":
        xp.divide(out, size, out=out)
