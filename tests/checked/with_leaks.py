"""Objects that a program creates and does not destroy."""

from __future__ import annotations

from contextlib import contextmanager

from cuda.bindings import driver

import cudasync as cs
from checked.table import call, memory, ok, right, streams, wrong

PTX = (
    b".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n\0"
)


@wrong("leak", "of three allocations in a loop the last is freed")
def memory_in_a_loop():
    for _ in range(3):
        x = ok(driver.cuMemAlloc(64))
    ok(driver.cuMemFree(x))


@right("each is freed")
def memory_in_a_loop_that_is_freed():
    for _ in range(3):
        x = ok(driver.cuMemAlloc(64))
        ok(driver.cuMemFree(x))


@wrong("leak", "pinned memory is never freed")
def pinned_memory():
    ok(driver.cuMemHostAlloc(64, 0))


@right("it is freed by the pointer that the device has")
def pinned_memory_that_is_freed():
    x = ok(driver.cuMemHostAlloc(64, 0))
    ok(driver.cuMemFreeHost(ok(driver.cuMemHostGetDevicePointer(x, 0))))


@wrong("leak", "the pool's memory is not given back to it")
def memory_of_a_pool():
    with streams(1) as (one,):
        x = ok(driver.cuMemAllocAsync(64, one))
        ok(driver.cuMemsetD8Async(x, 0, 64, one))
        ok(driver.cuStreamSynchronize(one))


@right("it is given back in stream order, which nobody waits for")
def memory_of_a_pool_that_is_given_back():
    with streams(1) as (one,):
        x = ok(driver.cuMemAllocAsync(64, one))
        ok(driver.cuMemFreeAsync(x, one))


@wrong("leak", "an exception goes past the end of a stream")
def a_stream_and_an_exception():
    @contextmanager
    def stream():
        made = ok(driver.cuStreamCreate(1))
        yield made
        ok(driver.cuStreamDestroy(made))

    try:
        with stream():
            raise KeyError
    except KeyError:
        pass


@right("the end is in a finally")
def a_stream_and_a_finally():
    try:
        made = ok(driver.cuStreamCreate(1))
        try:
            raise KeyError
        finally:
            ok(driver.cuStreamDestroy(made))
    except KeyError:
        pass


@wrong("leak", "an event for each launch, and none is destroyed")
def events_for_launches():
    with memory(64) as (x,), streams(1) as (one,):
        for _ in range(3):
            ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
            ok(driver.cuEventRecord(ok(driver.cuEventCreate(2)), one))


@right("each is destroyed, though its work is not done")
def events_that_are_destroyed():
    with memory(64) as (x,), streams(1) as (one,):
        for _ in range(3):
            ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
            done = ok(driver.cuEventCreate(2))
            ok(driver.cuEventRecord(done, one))
            ok(driver.cuEventDestroy(done))


@wrong("leak", "the executable is destroyed, its graph is not")
def a_graph():
    graph = ok(driver.cuGraphCreate(0))
    ok(driver.cuGraphExecDestroy(ok(driver.cuGraphInstantiate(graph, 0))))


@wrong("leak", "the graph is destroyed, its executable is not")
def an_executable():
    graph = ok(driver.cuGraphCreate(0))
    ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphDestroy(graph))


@right("both are, the graph first")
def a_graph_and_an_executable():
    graph = ok(driver.cuGraphCreate(0))
    exe = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphDestroy(graph))
    ok(driver.cuGraphExecDestroy(exe))


@wrong("leak", "a module is loaded and never unloaded")
def a_module():
    ok(driver.cuModuleLoadData(PTX))


@right("it is unloaded, and a library too")
def a_module_that_is_unloaded():
    ok(driver.cuModuleUnload(ok(driver.cuModuleLoadData(PTX))))
    ok(driver.cuLibraryUnload(_library()))


# Loaded before any check; each run of a program takes one.
LIBRARIES = []


def prepare():
    for _ in range(8):
        LIBRARIES.append(_library())


def _library():
    return ok(driver.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))


@wrong("leak", "a library is loaded and never unloaded")
def a_library():
    _library()


@right("a module belongs to a library, and ends with it")
def a_module_of_a_library():
    ok(driver.cuLibraryGetModule(LIBRARIES.pop()))


@right("cudasync's objects end what they made when they go")
def objects_that_go():
    with cs.Stream() as stream:
        cs.memset_async(cs.DeviceBuffer(64), 0, stream=stream)
        stream.synchronize()
    cs.Module.from_ptx(PTX[:-1].decode())
