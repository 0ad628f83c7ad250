"""Floor 1, graphs. The form that all kinds of work have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from cudasync.driver.device import Device


class Work:
    """What one node does. `params` are what the driver's calls take behind the node."""

    # As `GraphNode.kind` names it.
    kind: ClassVar[str]
    # The driver's functions; "" where nothing can be changed.
    add: ClassVar[str]
    change: ClassVar[str] = ""

    def params(self, device: Device) -> tuple[Any, ...]:
        """For a graph of `device`. Raises ValueError for what is of another device, ClosedError for
        what is closed."""
        raise NotImplementedError

    @property
    def keeps(self) -> object:
        """What has to live as long as the node."""
        return self
