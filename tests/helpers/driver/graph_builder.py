"""Building graphs in tests: nodes over words of device memory, through the real cuda.bindings."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from cuda.bindings import driver
from helpers.driver.call_results import cuda13, ok

PTX = (Path(__file__).parents[1] / "kernels.ptx").read_bytes()
HOST, DEVICE = driver.CUmemorytype.CU_MEMORYTYPE_HOST, driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
CODES = driver.CUresult
POINTER, INT, UNSIGNED = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def code(result):
    """The code of a call that may fail."""
    return result[0]


def native(function):
    """Convert a ctypes callback to the driver's type."""
    return driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)


class Words:
    """An array of 32-bit words in device memory."""

    def __init__(self, count, value=0):
        self.count = count
        self.bytes = 4 * count
        self.address = int(ok(driver.cuMemAlloc(self.bytes)))
        ok(driver.cuMemsetD32(self.address, value, count))
        ok(driver.cuStreamSynchronize(driver.CUstream(driver.CU_STREAM_LEGACY)))

    def read(self):
        """The words, copied after all work on blocking streams."""
        found = np.zeros(self.count, np.uint32)
        ok(driver.cuMemcpyDtoH(found.ctypes.data, self.address, self.bytes))
        return found.tolist()


class Kernels:
    """The kernels of `kernels.ptx`, as node parameters and as launches."""

    def __init__(self, context):
        self.context = context
        self.module = ok(driver.cuModuleLoadData(PTX))
        self.mix = ok(driver.cuModuleGetFunction(self.module, b"mix"))
        self.set = ok(driver.cuModuleGetFunction(self.module, b"set"))

    def mix_arguments(self, target, source, factor):
        values = (target.address, source.address, factor, target.count)
        return values, (POINTER, POINTER, INT, UNSIGNED)

    def set_arguments(self, target, value):
        return (target.address, value, target.count), (POINTER, INT, UNSIGNED)

    def params(self, function, arguments, count):
        made = driver.CUDA_KERNEL_NODE_PARAMS()
        made.func = function
        made.gridDimX, made.gridDimY, made.gridDimZ = (count + 31) // 32, 1, 1
        made.blockDimX, made.blockDimY, made.blockDimZ = 32, 1, 1
        made.sharedMemBytes = 0
        made.kernelParams = arguments
        return made

    def mix_params(self, target, source, factor):
        return self.params(self.mix, self.mix_arguments(target, source, factor), target.count)

    def set_params(self, target, value):
        return self.params(self.set, self.set_arguments(target, value), target.count)

    def launch_mix(self, stream, target, source, factor):
        self._launch(self.mix, stream, self.mix_arguments(target, source, factor), target.count)

    def launch_set(self, stream, target, value):
        self._launch(self.set, stream, self.set_arguments(target, value), target.count)

    def _launch(self, function, stream, arguments, count):
        blocks = (count + 31) // 32
        ok(driver.cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, arguments, 0))


def fill_params(words, value):
    """The parameters of a memset of all the words."""
    made = driver.CUDA_MEMSET_NODE_PARAMS()
    made.dst, made.value, made.elementSize = words.address, value, 4
    made.width, made.height, made.pitch = words.count, 1, 0
    return made


def copy_params(target, source, size_bytes):
    """The parameters of a contiguous copy; each end is `Words` or a host array."""
    made = driver.CUDA_MEMCPY3D()
    for side, end in (("dst", target), ("src", source)):
        is_host = isinstance(end, np.ndarray)
        setattr(made, f"{side}MemoryType", HOST if is_host else DEVICE)
        address = end.ctypes.data if is_host else end.address
        setattr(made, f"{side}{'Host' if is_host else 'Device'}", address)
    made.WidthInBytes, made.Height, made.Depth = size_bytes, 1, 1
    return made


class GraphText:
    """A graph under construction; every method returns the new node."""

    def __init__(self, kernels, graph=None):
        self.kernels = kernels
        self.graph = ok(driver.cuGraphCreate(0)) if graph is None else graph

    def kernel(self, params, after=()):
        return ok(driver.cuGraphAddKernelNode(self.graph, list(after), len(after), params))

    def mix(self, target, source, factor, after=()):
        return self.kernel(self.kernels.mix_params(target, source, factor), after)

    def set(self, target, value, after=()):
        return self.kernel(self.kernels.set_params(target, value), after)

    def fill(self, words, value, after=()):
        params = fill_params(words, value)
        context = self.kernels.context
        return ok(driver.cuGraphAddMemsetNode(self.graph, list(after), len(after), params, context))

    def copy(self, target, source, size_bytes, after=()):
        params = copy_params(target, source, size_bytes)
        context = self.kernels.context
        return ok(driver.cuGraphAddMemcpyNode(self.graph, list(after), len(after), params, context))

    def empty(self, after=()):
        return ok(driver.cuGraphAddEmptyNode(self.graph, list(after), len(after)))

    def host(self, function, after=()):
        params = driver.CUDA_HOST_NODE_PARAMS()
        params.fn = native(function)
        params.userData = 7
        return ok(driver.cuGraphAddHostNode(self.graph, list(after), len(after), params))

    def child(self, graph, after=()):
        return ok(driver.cuGraphAddChildGraphNode(self.graph, list(after), len(after), graph))

    def record(self, event, after=()):
        return ok(driver.cuGraphAddEventRecordNode(self.graph, list(after), len(after), event))

    def wait(self, event, after=()):
        return ok(driver.cuGraphAddEventWaitNode(self.graph, list(after), len(after), event))

    def instantiate(self, flags=0):
        return ok(driver.cuGraphInstantiate(self.graph, flags))


def run(executable, stream, times=1):
    """Launch `times` times and wait."""
    for _ in range(times):
        ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuStreamSynchronize(stream))


def edges_of(graph):
    """The edges as pairs of handles."""
    found = ok(cuda13.cuGraphGetEdges(graph, 64))
    sources, targets, _, count = found
    return [(int(a), int(b)) for a, b in zip(sources[:count], targets[:count], strict=True)]


def nodes_of(graph):
    """All nodes, oldest first."""
    nodes, count = ok(driver.cuGraphGetNodes(graph, 64))
    return nodes[:count]


def kinds_of(graph):
    """The types of all nodes, oldest first, without their prefix."""
    prefix = "CU_GRAPH_NODE_TYPE_"
    return [ok(driver.cuGraphNodeGetType(n)).name.removeprefix(prefix) for n in nodes_of(graph)]
