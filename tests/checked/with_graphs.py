"""Graphs: the order inside a graph, and the order of a launch with other work."""

from __future__ import annotations

from contextlib import contextmanager

from cuda.bindings import driver
from helpers.driver.call_results import cuda13

from checked.table import ARGUMENTS, call, events, kernel, memory, ok, right, streams, wrong

GLOBAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


@contextmanager
def graph():
    made = ok(driver.cuGraphCreate(0))
    yield made
    ok(driver.cuGraphDestroy(made))


@contextmanager
def executables(graph, count=1):
    made = [ok(driver.cuGraphInstantiate(graph, 0)) for _ in range(count)]
    yield made
    for each in made:
        ok(driver.cuGraphExecDestroy(each))


def node(name, *arguments):
    """The parameters of a kernel node."""
    made = driver.CUDA_KERNEL_NODE_PARAMS()
    made.func = kernel(name)
    made.gridDimX = made.gridDimY = made.gridDimZ = made.blockDimY = made.blockDimZ = 1
    made.blockDimX = 32
    made.kernelParams = (arguments, ARGUMENTS[name])
    return made


@contextmanager
def captured(stream):
    """Inside the block, capture the stream. Yields a list that gets the graph."""
    made = []
    ok(driver.cuStreamBeginCapture(stream, GLOBAL))
    yield made
    made.append(ok(driver.cuStreamEndCapture(stream)))


@wrong("race", "no edge leads from the node that writes to the one that reads")
def nodes_without_an_edge():
    with graph() as whole, memory(64, 64) as (x, y), streams(1) as (one,):
        ok(driver.cuGraphAddKernelNode(whole, None, 0, node("fill", x, 16, 1)))
        ok(driver.cuGraphAddKernelNode(whole, None, 0, node("twice", y, x, 16)))
        with executables(whole) as (exe,):
            ok(driver.cuGraphLaunch(exe, one))
            ok(driver.cuStreamSynchronize(one))


@right("one does")
def nodes_with_an_edge():
    with graph() as whole, memory(64, 64) as (x, y), streams(1) as (one,):
        first = ok(driver.cuGraphAddKernelNode(whole, None, 0, node("fill", x, 16, 1)))
        ok(driver.cuGraphAddKernelNode(whole, [first], 1, node("twice", y, x, 16)))
        with executables(whole) as (exe,):
            ok(driver.cuGraphLaunch(exe, one))
            ok(driver.cuStreamSynchronize(one))


@wrong("race", "of a diamond's four edges one was removed")
def a_diamond_without_an_edge():
    diamond(without=3)


@right("it has all four")
def a_diamond():
    diamond(without=None)


def diamond(without):
    with graph() as whole, memory(64, 64, 64) as (x, y, z), streams(1) as (one,):
        top, left, other, bottom = (
            ok(driver.cuGraphAddKernelNode(whole, None, 0, node(*each)))
            for each in (
                ("fill", x, 16, 1),
                ("twice", y, x, 16),
                ("twice", z, x, 16),
                ("sum", y, z, 1),
            )
        )
        edges = [(top, left), (top, other), (left, bottom), (other, bottom)]
        for before, after in (e for i, e in enumerate(edges) if i != without):
            ok(cuda13.cuGraphAddDependencies(whole, [before], [after], None, 1))
        with executables(whole) as (exe,):
            ok(driver.cuGraphLaunch(exe, one))
            ok(driver.cuStreamSynchronize(one))


@wrong("race", "a fork that was captured joins too early: behind it the fork goes on")
def a_join_too_early():
    fork(joins_late=False)


@right("it joins behind all of the fork's work")
def a_join():
    fork(joins_late=True)


def fork(*, joins_late):
    with streams() as (one, two), events(2) as (begun, done), memory(64, 64) as (x, y):
        with captured(one) as made:
            ok(driver.cuEventRecord(begun, one))
            ok(driver.cuStreamWaitEvent(two, begun, 0))
            if not joins_late:
                ok(driver.cuEventRecord(done, two))
                ok(driver.cuStreamWaitEvent(one, done, 0))
            ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=two)))
            if joins_late:
                ok(driver.cuEventRecord(done, two))
                ok(driver.cuStreamWaitEvent(one, done, 0))
            ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=one)))
            if not joins_late:
                ok(driver.cuEventRecord(done, two))
                ok(driver.cuStreamWaitEvent(one, done, 0))
        with executables(made[0]) as (exe,):
            ok(driver.cuGraphLaunch(exe, one))
            ok(driver.cuStreamSynchronize(one))
        ok(driver.cuGraphDestroy(made[0]))


@wrong("race", "two executables of one graph know nothing of each other")
def two_executables_at_once():
    with graph() as whole, memory(64) as (x,), streams() as (one, two):
        ok(driver.cuGraphAddKernelNode(whole, None, 0, node("fill", x, 16, 1)))
        with executables(whole, 2) as (first, second):
            ok(driver.cuGraphLaunch(first, one))
            ok(driver.cuGraphLaunch(second, two))
            ok(driver.cuCtxSynchronize())


@right("launches of one executable follow each other, in whatever streams")
def one_executable_twice():
    with graph() as whole, memory(64) as (x,), streams() as (one, two):
        ok(driver.cuGraphAddKernelNode(whole, None, 0, node("fill", x, 16, 1)))
        with executables(whole) as (exe,):
            ok(driver.cuGraphLaunch(exe, one))
            ok(driver.cuGraphLaunch(exe, two))
            ok(driver.cuCtxSynchronize())


@wrong("race", "the fill behind the launch is in a stream that does not wait for it")
def a_launch_beside_a_fill():
    with graph() as whole, memory(64) as (x,), streams() as (one, two):
        ok(driver.cuGraphAddKernelNode(whole, None, 0, node("fill", x, 16, 1)))
        with executables(whole) as (exe,):
            ok(driver.cuGraphLaunch(exe, one))
            ok(driver.cuMemsetD32Async(x, 2, 16, two))
            ok(driver.cuCtxSynchronize())


@right("the stream waits for an event behind the launch")
def a_launch_and_a_fill():
    with graph() as whole, memory(64) as (x,), streams() as (one, two), events() as (done,):
        ok(driver.cuGraphAddKernelNode(whole, None, 0, node("fill", x, 16, 1)))
        with executables(whole) as (exe,):
            ok(driver.cuGraphLaunch(exe, one))
            ok(driver.cuEventRecord(done, one))
            ok(driver.cuStreamWaitEvent(two, done, 0))
            ok(driver.cuMemsetD32Async(x, 2, 16, two))
            ok(driver.cuCtxSynchronize())


@wrong("init", "at the second launch the graph's memory is new, and the first node reads it again")
def memory_that_comes_again():
    memory_of_a_graph("twice", "fill")


@right("a node writes it first at each launch")
def memory_that_is_written_again():
    memory_of_a_graph("fill", "twice")


def memory_of_a_graph(*names):
    with graph() as whole, memory(64) as (y,), streams(1) as (one,):
        properties = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
        properties.poolProps.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.poolProps.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.bytesize = 64
        last = ok(driver.cuGraphAddMemAllocNode(whole, None, 0, properties))
        x = int(properties.dptr)
        arguments = {"fill": (x, 16, 1), "twice": (y, x, 16)}
        for each in names:
            made = node(each, *arguments[each])
            last = ok(driver.cuGraphAddKernelNode(whole, [last], 1, made))
        ok(driver.cuGraphAddMemFreeNode(whole, [last], 1, x))
        with executables(whole) as (exe,):
            for _ in range(2):
                ok(driver.cuGraphLaunch(exe, one))
            ok(driver.cuStreamSynchronize(one))


@wrong("race", "the value that a graph's node waits for is there from the beginning")
def a_value_in_a_graph_that_says_nothing():
    value_in_a_graph(awaited=0)


@right("another graph's node writes it behind a kernel")
def a_value_in_a_graph_that_orders():
    value_in_a_graph(awaited=1)


def value_in_a_graph(awaited):
    with (
        graph() as reader,
        graph() as writer,
        memory(64, 64, 4) as (x, y, word),
        streams() as (one, two),
    ):
        wait = ok(driver.cuGraphAddBatchMemOpNode(reader, None, 0, words(("wait", word, awaited))))
        ok(driver.cuGraphAddKernelNode(reader, [wait], 1, node("twice", y, x, 16)))
        fill = ok(driver.cuGraphAddKernelNode(writer, None, 0, node("fill", x, 16, 1)))
        ok(driver.cuGraphAddBatchMemOpNode(writer, [fill], 1, words(("write", word, 1))))
        with executables(reader) as (waits,), executables(writer) as (writes,):
            ok(driver.cuGraphLaunch(waits, two))
            ok(driver.cuGraphLaunch(writes, one))
            ok(driver.cuCtxSynchronize())


@wrong("race", "a kernel reads the word that a node beside it writes")
def a_word_of_a_node_that_a_kernel_reads():
    word_of_a_node(has_edge=False)


@right("an edge leads from the node to the kernel")
def a_word_of_a_node_and_a_kernel():
    word_of_a_node(has_edge=True)


def word_of_a_node(*, has_edge):
    with graph() as whole, memory(8, 8) as (word, y), streams(1) as (one,):
        pair = words(("write", word, 1), ("write", word + 4, 2))
        first = ok(driver.cuGraphAddBatchMemOpNode(whole, None, 0, pair))
        before = [first] if has_edge else None
        made = node("twice", y, word, 2)
        ok(driver.cuGraphAddKernelNode(whole, before, int(has_edge), made))
        with executables(whole) as (exe,):
            ok(driver.cuGraphLaunch(exe, one))
            ok(driver.cuStreamSynchronize(one))


def words(*operations):
    """The parameters of a node that waits for words and writes words, one after the other."""
    kinds = driver.CUstreamBatchMemOpType
    made = driver.CUDA_BATCH_MEM_OP_NODE_PARAMS()
    made.ctx = ok(driver.cuCtxGetCurrent())
    each_of = []
    for kind, address, value in operations:
        one = driver.CUstreamBatchMemOpParams()
        side = one.waitValue if kind == "wait" else one.writeValue
        side.operation = one.operation = getattr(kinds, f"CU_STREAM_MEM_OP_{kind.upper()}_VALUE_32")
        side.address, side.value = address, driver.cuuint32_t(value)
        each_of.append(one)
    made.paramArray, made.count = each_of, len(each_of)
    return made
