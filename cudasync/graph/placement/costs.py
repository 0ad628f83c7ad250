"""Floor 3, placement. What a step costs on a device: measured, where that was, else by its bytes.

`exe.measure()` notes what it finds, and whatever is instantiated later is placed by it: the same
kernel, in the same shape, on as many bytes. Rough figures rank the rest (`graph/figures`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.graph.figures import LINK_BYTES_PER_S, LINK_S, bytes_of, seconds_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cudasync.driver import Device
    from cudasync.graph.node import Node

# Programs with more kinds of steps than this begin anew.
_MOST = 4096

# By what is done: seconds on each device, by ordinal.
_measured: dict[Hashable, dict[int, float]] = {}


def note(node: Node, seconds: float) -> None:
    """A step of a device was measured. Any thread may note; the latest counts."""
    kind = _kind_of(node)
    if kind is None or node.device is None:
        return
    if kind not in _measured and len(_measured) >= _MOST:
        _measured.clear()
    _measured.setdefault(kind, {})[node.device.ordinal] = seconds


def seconds_on(node: Node, device: Device) -> float:
    """What the step takes there: as measured there, else as measured anywhere, else an estimate."""
    found = _measured.get(_kind_of(node)) or {}
    return found.get(device.ordinal, next(iter(found.values()), seconds_of(node, bytes_of(node))))


def link(size_bytes: int) -> float:
    """Seconds that so many bytes take from one device to another."""
    return LINK_S + size_bytes / LINK_BYTES_PER_S


def forget() -> None:
    """Know of nothing that was measured."""
    _measured.clear()


def _kind_of(node: Node) -> Hashable:
    """What is done, whatever the device and the addresses; None if that can not be told."""
    if node.launch is None:
        return None
    kernel = node.launch.kernel
    return kernel.name, kernel.module.text, node.launch.shape, bytes_of(node)
