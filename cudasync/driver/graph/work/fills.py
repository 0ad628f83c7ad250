"""Floor 1, graphs. Fill nodes: device memory is set to one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

from cuda.bindings import driver

from cudasync.driver.graph.work.work import Work
from cudasync.driver.memory.copy import fill_of

if TYPE_CHECKING:
    import numpy as np

    from cudasync.driver.device import Device


class Fill(Work):
    """Sets every element of device memory to one value; the arguments are `memset_async`'s.

    (cuGraphAddMemsetNode)
    """

    kind = "memset"
    add = "cuGraphAddMemsetNode"
    change = "cuGraphExecMemsetNodeSetParams"

    def __init__(
        self, target: object, value: int | np.generic, *, size_bytes: SupportsIndex | None = None
    ) -> None:
        self._target = target
        self._fill = fill_of(target, value, None, size_bytes)
        if not self._fill.size:
            raise ValueError("the size to fill is 0: give at least one byte")

    def params(self, device: Device) -> tuple[Any, ...]:
        place, _, number, width, size = self._fill
        params = driver.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.value, params.elementSize = place, number, width
        params.width, params.height, params.pitch = size // width, 1, 0
        return params, device.context.handle()
