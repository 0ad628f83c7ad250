"""Programs with numba-cuda: its arrays, streams and kernels. It keeps modules: no leak check."""

from __future__ import annotations

import numpy as np
from numba import cuda, int32

from checked.table import right, wrong
from cudasync.testing import host_access


@cuda.jit
def twice(y, x):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = 2 * x[i]


@cuda.jit
def up_to(x, count):
    i = cuda.grid(1)
    if i < count:
        x[i] = i


@cuda.jit
def reversed_by_block(y, x, written):
    room = cuda.shared.array(32, int32)
    i = cuda.threadIdx.x
    if i < written:
        room[i] = x[i]
    cuda.syncthreads()
    y[i] = room[31 - i]


def arrays(count=2, size=32):
    made = [cuda.to_device(np.zeros(size, np.int32)) for _ in range(count)]
    cuda.synchronize()
    return made


def prepare():
    x, y = arrays()
    twice[1, 32](y, x)
    up_to[1, 32](x, 32)
    reversed_by_block[1, 32](y, x, 32)
    cuda.synchronize()


@wrong("race", "the second kernel's stream does not wait for the first's")
def kernels_in_two_streams():
    x, y = arrays()
    one, two = cuda.stream(), cuda.stream()
    up_to[1, 32, one](x, 32)
    twice[1, 32, two](y, x)
    cuda.synchronize()


@right("it waits for an event")
def kernels_in_two_streams_in_order():
    x, y = arrays()
    one, two = cuda.stream(), cuda.stream()
    done = cuda.event(timing=False)
    up_to[1, 32, one](x, 32)
    done.record(one)
    done.wait(two)
    twice[1, 32, two](y, x)
    cuda.synchronize()


@right("the default stream joins both")
def kernels_beside_the_default_stream():
    x, y = arrays()
    one, two = cuda.stream(), cuda.stream()
    up_to[1, 32, one](x, 32)
    twice[1, 32](y, x)
    up_to[1, 32, two](x, 32)
    cuda.synchronize()


@wrong("race", "the copy to the host's pinned array waits for its own stream alone")
def a_copy_to_the_host():
    (x,) = arrays(1)
    one, two = cuda.stream(), cuda.stream()
    target = cuda.pinned_array(32, np.int32)
    up_to[1, 32, one](x, 32)
    x.copy_to_host(target, stream=two)
    cuda.synchronize()


@wrong("race", "the host reads the pinned array while the copy is under way")
def a_pinned_array_that_is_read_too_early():
    (x,) = arrays(1)
    one = cuda.stream()
    target = cuda.pinned_array(32, np.int32)
    x.copy_to_host(target, stream=one)
    host_access(target, writes=False)
    cuda.synchronize()


@right("it waits for the stream")
def a_pinned_array_that_is_read_in_time():
    (x,) = arrays(1)
    one = cuda.stream()
    target = cuda.pinned_array(32, np.int32)
    x.copy_to_host(target, stream=one)
    one.synchronize()
    host_access(target, writes=False)
    cuda.synchronize()


@wrong("mem", "the kernel is told of more elements than there are")
def a_count_too_many():
    (x,) = arrays(1)
    up_to[2, 32](x, 33)
    cuda.synchronize()


@wrong("init", "the array is made and not filled")
def an_empty_array():
    (y,) = arrays(1)
    twice[1, 32](y, cuda.device_array(32, np.int32))
    cuda.synchronize()


@right("what is made and not filled is only written")
def an_empty_result():
    (x,) = arrays(1)
    twice[1, 32](cuda.device_array(32, np.int32), x)
    cuda.synchronize()


@right("all of the shared array is written")
def a_shared_array():
    x, y = arrays()
    reversed_by_block[1, 32](y, x, 32)
    cuda.synchronize()


@wrong("init", "one element of the block's shared array is never written")
def a_shared_array_in_part():
    x, y = arrays()
    reversed_by_block[1, 32](y, x, 31)
    cuda.synchronize()
