"""Floor 1, graphs. A C function that the driver calls on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.graph.work.work import Work
from cudasync.driver.streams.host_function import refuse_python

if TYPE_CHECKING:
    from cudasync.driver.device import Device


class HostFunction(Work):
    """A C function `void (*)(void *data)`, by its address, which numba's `cfunc` has, for instance.

    The driver calls it on a thread of its own, where no call of the driver is allowed. No Python
    function: one would take the interpreter where nobody can be waited for; put that behind the
    graph, as an op of an engine. What the address belongs to is given as `keeps`, or kept alive by
    the caller. (cuGraphAddHostNode)
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
