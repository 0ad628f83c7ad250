"""Floor 3, placement. The cost of a step on a device: as measured, else by its bytes.

`exe.measure()` notes costs. Later instantiations use them for the same kernel, in the same shape,
on as many bytes. Rough figures rank the other steps (`graph/statistics`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.statistics import LINK_BYTES_PER_S, LINK_S, bytes_of, seconds_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cudasync.driver import Device
    from cudasync.graph.node import Node

# Beyond this many kinds of steps, the table begins anew.
_MOST = 4096

# By kind of step: seconds on each device, by ordinal.
_measured: dict[Hashable, dict[int, float]] = {}


def note(node: Node, seconds: float) -> None:
    """Note the measured time of a device step. Any thread may note; the latest counts."""
    kind = _kind_of(node)
    if kind is None or node.device is None:
        return
    if kind not in _measured and len(_measured) >= _MOST:
        _measured.clear()
    _measured.setdefault(kind, {})[node.device.ordinal] = seconds


def seconds_on(node: Node, device: Device) -> float:
    """The seconds of the step there: as measured there, else as measured anywhere, else
    estimated."""
    found = _measured.get(_kind_of(node)) or {}
    return found.get(device.ordinal, next(iter(found.values()), seconds_of(node, bytes_of(node))))


def link(size_bytes: int) -> float:
    """The seconds of a copy of so many bytes between devices."""
    return LINK_S + size_bytes / LINK_BYTES_PER_S


def forget() -> None:
    """Forget all measured times."""
    _measured.clear()


def _kind_of(node: Node) -> Hashable:
    """The step's kind, independent of device and addresses; None if it is unknown."""
    if node.launch is None:
        return None
    kernel = node.launch.kernel
    return kernel.name, kernel.module.text, node.launch.shape, bytes_of(node)
