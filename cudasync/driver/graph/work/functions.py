"""Floor 1, graphs. Host nodes: a C function that the driver calls on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.graph.work.work import Work
from cudasync.driver.streams.host_function import refuse_python

if TYPE_CHECKING:
    from cudasync.driver.device import Device


class HostFunction(Work):
    """A C function `void (*)(void *data)`, by its address, for instance from numba's `cfunc`.

    The driver calls it on its own thread, where driver calls are not allowed. A Python function is
    not allowed, since it would wait for the GIL there; push it behind the graph, as an op of an
    engine. The owner of the address is passed as `keeps`, or the caller keeps it alive.
    (cuGraphAddHostNode)
    """

    kind = "host"
    add = "cuGraphAddHostNode"
    change = "cuGraphExecHostNodeSetParams"

    def __init__(self, address: int, data: int = 0, *, keeps: object = None) -> None:
        refuse_python(address)
        self._address = address
        self._data = data
        self._kept = keeps

    def params(self, device: Device) -> tuple[Any, ...]:
        params = driver.CUDA_HOST_NODE_PARAMS()
        params.fn = driver.CUhostFn(self._address)
        params.userData = self._data
        return (params,)
