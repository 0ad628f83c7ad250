"""`explore` runs a program in each order that may matter, and says whether these were all."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.repository.subprocesses import assert_runs_clean

import cudasync as cs
from cudasync.testing import Exploration, explore

COUNT = 64
SAXPY = "ptx/kernels/saxpy.ptx"


def buffers(count):
    return [cs.DeviceBuffer(4 * COUNT) for _ in range(count)]


def streams(count):
    return [cs.Stream() for _ in range(count)]


def write_value(stream, address, value):
    (code,) = driver.cuStreamWriteValue32(stream.handle, address, value, 0)
    assert not code


def fork_and_join(*, forgotten: str = "") -> None:
    """One stream fills a buffer, another then fills half of it. The wait may be forgotten."""
    left, right = streams(2)
    (data,) = buffers(1)
    back = cs.pinned_empty((COUNT,), np.uint32)
    cs.memset_async(data, 0, stream=left)
    cs.memset_async(data, 1, stream=left)
    if forgotten != "wait":
        right.wait(left)
    cs.memset_async(data, 2, size_bytes=2 * COUNT, stream=right)
    cs.Device(0).synchronize()
    cs.memcpy_async(back, data, stream=right)
    right.synchronize()
    assert (back[: COUNT // 2] == 0x02020202).all()
    assert (back[COUNT // 2 :] == 0x01010101).all()


def test_a_program_without_a_race_has_one_order():
    assert explore(fork_and_join) == Exploration(1, is_complete=True)


def test_a_wait_that_is_forgotten_is_found_where_the_usual_order_lets_it_pass():
    fork_and_join(forgotten="wait")
    with pytest.raises(AssertionError) as caught:
        explore(lambda: fork_and_join(forgotten="wait"))
    (note,) = caught.value.__notes__
    assert "a memset of" in note
    assert "order=" in note


def test_the_order_that_failed_can_be_run_again():
    def program():
        fork_and_join(forgotten="wait")

    with pytest.raises(AssertionError) as caught:
        explore(program)
    order = caught.value.__notes__[0].rpartition('order="')[2].removesuffix('")')
    for _ in range(2):
        with pytest.raises(AssertionError):
            explore(program, order=order)


def test_an_order_that_is_asked_for_is_not_all():
    found = explore(fork_and_join, order="1.1")
    assert found.orders == 1
    assert not found.is_complete
    assert "one order" in found.why


def racing(writers):
    (target,) = buffers(1)
    every = streams(writers)
    for value, stream in enumerate(every):
        cs.memset_async(target, value, stream=stream)
    for stream in every:
        stream.synchronize()
    back = np.zeros(COUNT, np.uint32)
    cs.memcpy_async(back, target)
    return int(back[0]) & 0xFF


def test_each_order_of_writers_is_seen():
    seen = []
    assert explore(lambda: seen.append(racing(3))) == Exploration(6, is_complete=True)
    assert sorted(set(seen)) == [0, 1, 2]


def test_no_more_orders_are_run_than_were_asked_for():
    found = explore(lambda: racing(4), most=5)
    assert found.orders == 5
    assert not found.is_complete
    assert "more" in found.why


def test_work_on_different_memory_is_not_run_in_different_orders():
    def program():
        for target, stream in zip(buffers(6), streams(6), strict=True):
            cs.memset_async(target, 1, stream=stream)
        cs.Device(0).synchronize()

    assert explore(program) == Exploration(1, is_complete=True)


def test_kernels_are_known_by_the_bytes_they_touch():
    """Two launches on different halves of a buffer have one order, two on the same half two."""
    kernel = cs.Module.from_file(SAXPY).kernel("saxpy")

    def program(apart):
        first, second = streams(2)
        x, y = buffers(2)
        cs.memset_async(x, 0, stream=first)
        cs.memset_async(y, 0, stream=first)
        first.synchronize()
        half = np.uint32(COUNT // 2)
        for index, stream in enumerate((first, second)):
            start = y.ptr + 2 * COUNT * index * apart
            args = (np.float32(index), x, start, half)
            cs.launch(kernel, grid=(1,), block=(32,), args=args, stream=stream)
        cs.Device(0).synchronize()

    assert explore(lambda: program(1)).orders == 1
    assert explore(lambda: program(0)) == Exploration(2, is_complete=True)


def test_what_a_wait_for_a_value_needs_comes_first():
    """A write of the word before or after the other stream reaches its wait is one order."""

    def program():
        first, second = streams(2)
        (word,) = buffers(1)
        cs.memset_async(word, 0, stream=first)
        first.synchronize()
        second.wait_value(word.ptr, 1)
        cs.memset_async(word, 7, stream=second)
        write_value(first, word.ptr, 1)
        cs.Device(0).synchronize()

    assert explore(program) == Exploration(1, is_complete=True)


def test_a_kernel_that_spins_is_seen_before_and_after_the_word_is_written():
    spin = cs.Module.from_ptx(
        """
        .version 7.0
        .target sm_75
        .address_size 64
        .visible .entry spin(.param .u64 word)
        {
            .reg .u64 %rd_word;
            .reg .u32 %r_value;
            .reg .pred %p_more;
            ld.param.u64 %rd_word, [word];
        LOOK:
            ld.volatile.global.u32 %r_value, [%rd_word];
            setp.eq.u32 %p_more, %r_value, 0;
            @%p_more bra LOOK;
            ret;
        }
        """
    ).kernel("spin")

    def program():
        first, second = streams(2)
        (word,) = buffers(1)
        cs.memset_async(word, 0, stream=first)
        first.synchronize()
        cs.launch(spin, grid=(1,), block=(1,), args=(word,), stream=second)
        cs.memset_async(word, 1, stream=first)
        cs.Device(0).synchronize()

    assert explore(program) == Exploration(2, is_complete=True)


def test_memory_that_a_stream_allocates_is_not_there_in_every_order():
    def program(waits):
        first, second = streams(2)
        data = cs.DeviceBuffer(64, stream=first)
        if waits:
            second.wait(first)
        cs.memset_async(data, 0, stream=second)
        second.synchronize()

    assert explore(lambda: program(waits=True)) == Exploration(1, is_complete=True)


def test_what_is_not_waited_for_is_done_after_each_run():
    kept = []

    def program():
        (target,) = buffers(1)
        kept.append(target)
        for value, stream in enumerate(streams(2)):
            kept.append(stream)
            cs.memset_async(target, value, stream=stream)

    assert explore(program) == Exploration(2, is_complete=True)


def test_a_program_that_polls_is_never_known_to_be_done():
    def program():
        (stream,) = streams(1)
        (target,) = buffers(1)
        cs.memset_async(target, 0, stream=stream)
        while not stream.query():
            pass

    found = explore(program)
    assert found.orders == 1
    assert not found.is_complete
    assert "depends on time" in found.why


def test_a_program_of_several_threads_is_never_known_to_be_done():
    def work():
        (target,), (stream,) = buffers(1), streams(1)
        cs.memset_async(target, 0, stream=stream)
        stream.synchronize()

    def program():
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = explore(program)
    assert found.orders >= 1
    assert "several threads" in found.why


def test_a_program_that_does_something_else_each_time_is_noticed():
    runs = []

    def program():
        runs.append(0)
        racing(2 if len(runs) == 1 else 0)

    assert "other choices from run to run" in explore(program).why


def test_one_exploration_at_a_time():
    with pytest.raises(cs.CudaError, match="another exploration is running"):
        explore(lambda: explore(fork_and_join))
    assert explore(fork_and_join).is_complete


def test_less_than_one_order_is_refused():
    with pytest.raises(ValueError, match="give 1 or more orders"):
        explore(fork_and_join, most=0)


@pytest.mark.parametrize("order", ["1", "1.", ".1", "a.b", "1.1 x"])
def test_what_is_no_order_is_refused(order):
    with pytest.raises(cs.CudaError, match="not a step"):
        explore(fork_and_join, order=order)


def test_after_an_exploration_the_order_is_the_usual_one():
    explore(fork_and_join)
    fork_and_join(forgotten="wait")


@pytest.mark.slow
def test_where_all_is_done_at_once_the_program_is_run_once():
    program = """
    from cudasync.testing import explore
    runs = []
    found = explore(lambda: runs.append(0))
    assert found.orders == len(runs) == 1
    assert not found.is_complete
    """
    assert_runs_clean(program, CUDASYNC_DEVICE="soft", CUDASYNC_SOFTGPU_SCHEDULER="threaded")


def test_branches_of_a_graph_are_run_in_both_orders():
    """Unordered nodes are like unordered streams."""

    def program(is_ordered):
        (stream,) = streams(1)
        (data,) = buffers(1)
        (code, graph) = driver.cuGraphCreate(0)
        assert not code
        _, context = driver.cuCtxGetCurrent()
        nodes = []
        for value in (1, 2):
            fill = driver.CUDA_MEMSET_NODE_PARAMS()
            fill.dst, fill.value, fill.elementSize = data.ptr, value, 1
            fill.width, fill.height = 4 * COUNT, 1
            before = nodes if is_ordered else []
            code, node = driver.cuGraphAddMemsetNode(graph, before, len(before), fill, context)
            assert not code
            nodes.append(node)
        code, executable = driver.cuGraphInstantiate(graph, 0)
        assert not code
        assert not driver.cuGraphLaunch(executable, stream.handle)[0]
        stream.synchronize()
        driver.cuGraphExecDestroy(executable)
        driver.cuGraphDestroy(graph)

    assert explore(lambda: program(is_ordered=True)) == Exploration(1, is_complete=True)
    assert explore(lambda: program(is_ordered=False)) == Exploration(2, is_complete=True)
