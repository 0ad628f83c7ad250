"""Floor 1, graphs. Allocation and free nodes: memory at an address known beforehand."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

from cuda.bindings import driver

from cudasync.driver.graph.work.work import Work
from cudasync.driver.memory.buffer import checked_size

if TYPE_CHECKING:
    from cudasync.driver.device import Device


class Allocate(Work):
    """Allocates memory of the graph's device; once the node is added, `ptr` is its address.

    The memory exists from the node on until it is freed: by a node of this graph, or of another
    graph that is launched later. (cuGraphAddMemAllocNode)
    """

    kind = "mem_alloc"
    add = "cuGraphAddMemAllocNode"

    def __init__(self, size_bytes: SupportsIndex) -> None:
        self.size_bytes = checked_size(size_bytes)
        if self.size_bytes < 1:
            raise ValueError(f"a node cannot allocate {self.size_bytes} bytes: give 1 or more")
        self._params: Any = None

    def params(self, device: Device) -> tuple[Any, ...]:
        params = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
        params.poolProps.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        params.poolProps.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        params.poolProps.location.id = device.ordinal
        params.bytesize = self.size_bytes
        self._params = params
        return (params,)

    @property
    def ptr(self) -> int:
        """The address. Raises ValueError before the node is added."""
        if self._params is None:
            raise ValueError("the memory has no address yet: add its node to a graph first")
        return int(self._params.dptr)


class Free(Work):
    """Frees memory that a graph allocated. (cuGraphAddMemFreeNode)"""

    kind = "mem_free"
    add = "cuGraphAddMemFreeNode"

    def __init__(self, ptr: SupportsIndex) -> None:
        self._ptr = operator.index(ptr)

    def params(self, device: Device) -> tuple[Any, ...]:
        return (self._ptr,)
