"""Floor 1. Exploration: runs of a program, one for each order of its commands.

It needs extra functions of the driver, which are looked up by name. The software GPU has them;
nobody can choose a real driver's order.
"""

from __future__ import annotations

import ctypes
import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cudasync.driver.probe import LIBRARY, ensure_driver
from cudasync.driver.result import failure
from cudasync.errors import CudaError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_BEGIN, _NEXT = "cudasyncExploreBegin", "cudasyncExploreNext"
_REPORT, _END = "cudasyncExploreReport", "cudasyncExploreEnd"
_OP = "cudasyncExploreOp"
_REPORT_BYTES = 1 << 20
_NOT_SUPPORTED = 801
# Callers check this before `on_behalf`: it is the only cost for every op.
is_under_way = False


class Report(NamedTuple):
    """The progress of an exploration; `order` and `steps` are of the latest run."""

    orders: int
    has_more: bool
    doubts: list[str]
    order: str
    steps: list[str]


@cache
def _can_explore() -> bool:
    ensure_driver()
    return getattr(ctypes.CDLL(LIBRARY), _BEGIN, None) is not None


def begin(order: str) -> bool:
    """Begin to explore, with an `order` only that one; False if the order cannot be chosen.

    It cannot with a real driver, and if the software GPU works on threads.
    """
    if not _can_explore():
        return False
    global is_under_way
    try:
        _call(_BEGIN, order.encode())
    except CudaError as error:
        if error.code == _NOT_SUPPORTED:
            return False
        raise
    is_under_way = True
    return True


def next_run() -> bool:
    """Finish the last run's remaining work, and prepare another run; False if there is none."""
    has_more = ctypes.c_uint()
    _call(_NEXT, ctypes.byref(has_more))
    return bool(has_more.value)


def report() -> Report:
    """The exploration so far."""
    text = ctypes.create_string_buffer(_REPORT_BYTES)
    _call(_REPORT, text, ctypes.c_uint(_REPORT_BYTES))
    return Report(**json.loads(text.value))


def end() -> None:
    """End the exploration: the driver chooses the order again."""
    global is_under_way
    is_under_way = False
    _call(_END)


def on_behalf(site: str, fn: Callable[..., T], *args: object) -> T:
    """Call `fn(*args)`; its enqueued work is attributed to `site` ("file:line")."""
    _call(_OP, site.encode())
    try:
        return fn(*args)
    finally:
        _call(_OP, b"")


def _call(name: str, *arguments: Any) -> None:
    function = getattr(ctypes.CDLL(LIBRARY), name)
    code = function(*arguments)
    if code:
        raise failure(code, name)
