"""The default streams: the streams that they join, and the streams that they do not."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver

from checked.table import call, memory, ok, right, streams, wrong

PER_THREAD = driver.CUstream(driver.CU_STREAM_PER_THREAD)


@wrong("race", "a non-blocking stream does not join the default stream")
def a_stream_beside_the_default_stream():
    with streams(1, flags=1) as (one,), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))


@right("a blocking one does")
def a_stream_that_joins_the_default_stream():
    with streams(2, flags=0) as (one, two), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))
        ok(driver.cuLaunchKernel(*call("fill", y, 16, 1, on=two)))


@wrong("race", "the copy to the host joins blocking streams alone, and waits for its own")
def a_copy_to_the_host_beside_a_stream():
    found = (ctypes.c_int * 16)()
    with streams(1, flags=1) as (one,), memory(64) as (x,):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuMemcpyDtoH(ctypes.addressof(found), x, 64))


@right("the stream is a blocking one")
def a_copy_to_the_host():
    found = (ctypes.c_int * 16)()
    with streams(1, flags=0) as (one,), memory(64) as (x,):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuMemcpyDtoH(ctypes.addressof(found), x, 64))
    assert found[:] == [1] * 16


@wrong("race", "two blocking streams join the default stream, but not each other")
def two_blocking_streams():
    with streams(2, flags=0) as (one, two), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=two)))


@right("between the two something is done in the default stream")
def two_blocking_streams_with_a_fence():
    with streams(2, flags=0) as (one, two), memory(64, 64, 4) as (x, y, word):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=one)))
        ok(driver.cuMemsetD32Async(word, 0, 1, 0))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=two)))


@wrong("race", "the thread's default stream joins the legacy one, but no other stream")
def the_default_stream_of_a_thread():
    with streams(1, flags=0) as (one,), memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=PER_THREAD)))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16, on=one)))


@right("the thread's and the legacy default stream are in order")
def both_default_streams():
    with memory(64, 64) as (x, y):
        ok(driver.cuLaunchKernel(*call("fill", x, 16, 1, on=PER_THREAD)))
        ok(driver.cuLaunchKernel(*call("twice", y, x, 16)))
        ok(driver.cuLaunchKernel(*call("fill", y, 16, 1, on=PER_THREAD)))
