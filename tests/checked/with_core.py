"""Programs with cuda.core: its streams, buffers, launches and graphs."""

from __future__ import annotations

import functools

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

from checked.table import HERE, right, wrong
from cudasync.testing import host_access

ONE = LaunchConfig(grid=1, block=32)
FEW, MANY = np.int32(16), np.int32(17)


@functools.cache
def module():
    options = ProgramOptions(arch=f"compute_{device().arch}", lineinfo=True)
    return Program((HERE / "kernels.cu").read_text(), "c++", options=options).compile("ptx")


@functools.cache
def kernel(name: str):
    return module().get_kernel(name)


@functools.cache
def device():
    made = Device(0)
    made.set_current()
    return made


class Made:
    """Two streams and some buffers, which the block's end closes."""

    def __init__(self, *sizes: int) -> None:
        self.streams = [device().create_stream() for _ in range(2)]
        self.buffers = [device().allocate(size, stream=self.streams[0]) for size in sizes]
        for each in self.buffers:
            each.fill(0, stream=self.streams[0])
        self.streams[0].sync()

    def __enter__(self):
        return *self.streams, *self.buffers

    def __exit__(self, *_):
        for each in self.streams:
            each.sync()
        for each in self.buffers:
            each.close(self.streams[0])
        for each in self.streams:
            each.sync()
            each.close()


def prepare():
    with Made(64, 64) as (one, _, x, y):
        launch(one, ONE, kernel("fill"), x, FEW, FEW)
        launch(one, ONE, kernel("twice"), y, x, FEW)


@wrong("race", "the copy between buffers waits for no event behind the kernel")
def a_copy_beside_its_kernel():
    with Made(64, 64) as (one, two, x, y):
        launch(one, ONE, kernel("fill"), x, FEW, FEW)
        y.copy_from(x, stream=two)


@right("the stream waits for the other one")
def a_copy_behind_its_kernel():
    with Made(64, 64) as (one, two, x, y):
        launch(one, ONE, kernel("fill"), x, FEW, FEW)
        two.wait(one)
        y.copy_from(x, stream=two)


@wrong("race", "the event is recorded in the stream that should wait")
def an_event_of_the_wrong_stream():
    with Made(64, 64) as (one, two, x, y):
        launch(one, ONE, kernel("fill"), x, FEW, FEW)
        done = two.record()
        two.wait(done)
        launch(two, ONE, kernel("twice"), y, x, FEW)


@right("it is recorded behind the kernel")
def an_event_of_the_right_stream():
    with Made(64, 64) as (one, two, x, y):
        launch(one, ONE, kernel("fill"), x, FEW, FEW)
        done = one.record()
        two.wait(done)
        launch(two, ONE, kernel("twice"), y, x, FEW)


@wrong("race", "the host reads the pinned buffer before the copy is waited for")
def a_pinned_buffer_that_is_read_too_early():
    with Made(64) as (one, _, x):
        host = LegacyPinnedMemoryResource().allocate(64)
        view = np.from_dlpack(host).view(np.int32)
        x.copy_to(host, stream=one)
        host_access(view, writes=False)
        one.sync()
        host.close()


@right("it waits")
def a_pinned_buffer_that_is_read_in_time():
    with Made(64) as (one, _, x):
        host = LegacyPinnedMemoryResource().allocate(64)
        view = np.from_dlpack(host).view(np.int32)
        x.copy_to(host, stream=one)
        one.sync()
        host_access(view, writes=False)
        assert not view.any()
        host.close()


@wrong("mem", "the count is one too many")
def one_element_too_many():
    with Made(64) as (one, _, x):
        launch(one, ONE, kernel("fill"), x, MANY, FEW)


@wrong("init", "the buffer is fresh from the pool")
def a_fresh_buffer():
    with Made(64) as (one, _, y):
        x = device().allocate(64, stream=one)
        launch(one, ONE, kernel("twice"), y, x, FEW)
        x.close(one)


@right("it is filled first")
def a_filled_buffer():
    with Made(64) as (one, _, y):
        x = device().allocate(64, stream=one)
        x.fill(0, stream=one)
        launch(one, ONE, kernel("twice"), y, x, FEW)
        x.close(one)


@wrong("race", "of a graph's two branches one writes what the other one reads")
def branches_that_meet_too_late():
    branches(one_by_one=False)


@right("the two are one behind the other")
def nodes_one_by_one():
    branches(one_by_one=True)


def branches(*, one_by_one: bool):
    with Made(64, 64) as (one, _, x, y):
        builder = device().create_graph_builder().begin_building()
        if one_by_one:
            launch(builder, ONE, kernel("fill"), x, FEW, FEW)
            launch(builder, ONE, kernel("twice"), y, x, FEW)
        else:
            left, other = builder.split(2)
            launch(left, ONE, kernel("fill"), x, FEW, FEW)
            launch(other, ONE, kernel("twice"), y, x, FEW)
            builder = builder.join(left, other)
        graph = builder.end_building().complete()
        graph.launch(one)
        one.sync()
        graph.close()
        builder.close()
