"""Floor 1. Runs of a program, one for each order of its commands, where the driver can choose it.

A driver that can has functions for it that no other has; they are asked for by name. The software
GPU has them; a real driver's order is nobody's to choose.
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
# To be asked before `on_behalf` is called: it costs every op nothing else.
is_under_way = False


class Report(NamedTuple):
    """How far an exploration is; `order` and `steps` are of the latest run."""

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
    """Begin to explore, with an order only that one; False where the order is nobody's to choose.

    That is so with a real driver, and where the software GPU works on threads.
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
    """Finish what the last run left undone, and prepare another; False if there is none."""
    has_more = ctypes.c_uint()
    _call(_NEXT, ctypes.byref(has_more))
    return bool(has_more.value)


def report() -> Report:
    """What has been explored so far."""
    text = ctypes.create_string_buffer(_REPORT_BYTES)
    _call(_REPORT, text, ctypes.c_uint(_REPORT_BYTES))
    return Report(**json.loads(text.value))


def end() -> None:
    """The order is the driver's again."""
    global is_under_way
    is_under_way = False
    _call(_END)


def on_behalf(site: str, fn: Callable[..., T], *args: object) -> T:
    """`fn(*args)`; what it enqueues was asked for at `site` ("file:line"), perhaps long ago."""
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
