"""Floor 1, graphs. `Work`, the interface of all kinds of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from cudasync.driver.device import Device


class Work:
    """The work of one node. `params` are the last arguments of the driver's calls."""

    # The kind, as in `GraphNode.kind`.
    kind: ClassVar[str]
    # The names of the driver's functions; "" if the node cannot be changed.
    add: ClassVar[str]
    change: ClassVar[str] = ""

    def params(self, device: Device) -> tuple[Any, ...]:
        """The arguments for a graph of `device`. Raises ValueError for work of another device,
        ClosedError for a closed object."""
        raise NotImplementedError

    @property
    def keeps(self) -> object:
        """The object that must live as long as the node."""
        return self
