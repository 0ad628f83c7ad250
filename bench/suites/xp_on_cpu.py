"""`cudasync.xp` with the CPU as the default device.

For programs without devices, such as the array API standard's own tests.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from cudasync import xp
from cudasync.xp import *  # noqa: F403
from cudasync.xp import inspection

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = "cpu"
__array_api_version__ = xp.__array_api_version__


def _on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, device: Any = None, **more: Any) -> Any:
        return make(*args, device=DEVICE if device is None else device, **more)

    return made


arange, empty, eye, full, linspace, ones, zeros = map(
    _on_cpu, (xp.arange, xp.empty, xp.eye, xp.full, xp.linspace, xp.ones, xp.zeros)
)


@functools.wraps(xp.asarray)
def asarray(obj: Any, /, *, device: Any = None, **more: Any) -> Any:
    """Like `xp.asarray`, but our arrays keep their device."""
    is_ours = hasattr(type(obj), "__cudasync_plan__")
    return xp.asarray(obj, device=None if is_ours and device is None else device or DEVICE, **more)


class Info(inspection.Info):
    """The namespace's inspection, with its own default device."""

    def default_device(self) -> Any:
        return DEVICE


def __array_namespace_info__() -> Info:
    return Info()
