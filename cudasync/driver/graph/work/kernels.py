"""Floor 1, graphs. Kernel nodes: a launch of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.graph.work.work import Work

if TYPE_CHECKING:
    from cudasync.driver.device import Device
    from cudasync.driver.kernels.launch import Launch


class Kernel(Work):
    """A launch with its present arguments. (cuGraphAddKernelNode)"""

    kind = "kernel"
    add = "cuGraphAddKernelNode"
    change = "cuGraphExecKernelNodeSetParams"

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def params(self, device: Device) -> tuple[Any, ...]:
        launch = self._launch
        kernel = launch.kernel
        if kernel.device is not device:
            raise ValueError(
                f"kernel {kernel.name} is loaded on {kernel.device!r}, the graph on {device!r}"
            )
        kernel.get()
        params = driver.CUDA_KERNEL_NODE_PARAMS()
        params.func = kernel.function
        params.gridDimX, params.gridDimY, params.gridDimZ, *rest = launch.shape
        params.blockDimX, params.blockDimY, params.blockDimZ, params.sharedMemBytes = rest
        params.kernelParams = launch.block.address
        return (params,)
