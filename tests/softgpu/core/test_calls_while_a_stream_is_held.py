"""Which calls return while a stream is held by a value in memory, as on an H200 with driver 580."""

from __future__ import annotations

import ctypes
import threading

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.driver.graph_builder import code

BIG = 1 << 20
PTX = b""".version 6.4
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
\0"""


class Things:
    """What the calls need, and a stream that waits until the word is 1."""

    def __init__(self):
        self.word = ctypes.c_uint32.from_address(int(ok(driver.cuMemAllocHost(4096))))
        self.held, self.side = (ok(driver.cuStreamCreate(1)) for _ in range(2))
        self.memory, self.more, self.spare = (ok(driver.cuMemAlloc(BIG)) for _ in range(3))
        self.pinned, self.more_pinned, self.spare_pinned = (
            int(ok(driver.cuMemAllocHost(BIG))) for _ in range(3)
        )
        self._pageable = [ctypes.create_string_buffer(BIG) for _ in range(2)]
        self.pageable, self.more_pageable = map(ctypes.addressof, self._pageable)
        self.module, self.spare_module = (ok(driver.cuModuleLoadData(PTX)) for _ in range(2))
        self.function = ok(driver.cuModuleGetFunction(self.module, b"nothing"))
        self.executable = ok(driver.cuGraphInstantiate(ok(driver.cuGraphCreate(0)), 0))
        self.spare_stream, self.event = ok(driver.cuStreamCreate(1)), ok(driver.cuEventCreate(2))
        ok(driver.cuCtxSynchronize())
        self.word.value = 0
        ok(driver.cuStreamWaitValue32(self.held, ctypes.addressof(self.word), 1, 0))

    def launch(self, stream):
        return driver.cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)


WAITING = {
    "pageable to pageable": lambda t: driver.cuMemcpyAsync(t.pageable, t.more_pageable, 64, t.held),
    "pinned to pinned": lambda t: driver.cuMemcpyAsync(t.pinned, t.more_pinned, 64, t.held),
    "pageable to pinned": lambda t: driver.cuMemcpyAsync(t.pinned, t.pageable, 64, t.held),
    "much pageable to device": lambda t: driver.cuMemcpyHtoDAsync(
        t.memory, t.pageable, BIG, t.held
    ),
    "device to pageable": lambda t: driver.cuMemcpyDtoHAsync(t.pageable, t.memory, 64, t.held),
    "much device to pageable": lambda t: driver.cuMemcpyDtoHAsync(
        t.pageable, t.memory, BIG, t.held
    ),
    "cuMemFree": lambda t: driver.cuMemFree(t.spare),
    "cuMemFreeHost": lambda t: driver.cuMemFreeHost(t.spare_pinned),
    "cuModuleLoadData": lambda t: driver.cuModuleLoadData(PTX),
    "cuModuleUnload": lambda t: driver.cuModuleUnload(t.spare_module),
}
RETURNING = {
    "some pageable to device": lambda t: driver.cuMemcpyHtoDAsync(
        t.memory, t.pageable, 60000, t.held
    ),
    "pinned to device": lambda t: driver.cuMemcpyHtoDAsync(t.memory, t.pinned, BIG, t.held),
    "device to pinned": lambda t: driver.cuMemcpyDtoHAsync(t.pinned, t.memory, 64, t.held),
    "device to device": lambda t: driver.cuMemcpyDtoDAsync(t.memory, t.more, 64, t.held),
    "fill": lambda t: driver.cuMemsetD8Async(t.memory, 0, 64, t.held),
    "much pageable to device elsewhere": lambda t: driver.cuMemcpyHtoDAsync(
        t.memory, t.pageable, BIG, t.side
    ),
    "device to pageable elsewhere": lambda t: driver.cuMemcpyDtoHAsync(
        t.pageable, t.memory, 64, t.side
    ),
    "cuMemcpyHtoD": lambda t: driver.cuMemcpyHtoD(t.memory, t.pageable, 64),
    "cuMemcpyDtoD": lambda t: driver.cuMemcpyDtoD(t.memory, t.more, 64),
    "cuMemsetD8": lambda t: driver.cuMemsetD8(t.memory, 0, 64),
    "launch": lambda t: t.launch(t.held),
    "launch elsewhere": lambda t: t.launch(t.side),
    "cuMemAlloc": lambda t: driver.cuMemAlloc(BIG),
    "cuMemAllocHost": lambda t: driver.cuMemAllocHost(BIG),
    "cuMemAllocAsync": lambda t: driver.cuMemAllocAsync(BIG, t.side),
    "cuStreamCreate": lambda t: driver.cuStreamCreate(1),
    "cuStreamDestroy": lambda t: driver.cuStreamDestroy(t.spare_stream),
    "cuStreamDestroy of the held stream": lambda t: driver.cuStreamDestroy(t.held),
    "cuEventRecord": lambda t: driver.cuEventRecord(t.event, t.held),
    "cuGraphLaunch elsewhere": lambda t: driver.cuGraphLaunch(t.executable, t.side),
    "cuStreamSynchronize elsewhere": lambda t: driver.cuStreamSynchronize(t.side),
}


@pytest.mark.parametrize("name", RETURNING)
def test_a_call_returns_while_the_stream_is_held(context, name):
    things = Things()
    assert code(RETURNING[name](things)) == 0
    things.word.value = 1
    ok(driver.cuCtxSynchronize())


def waited(context, call, before_release=lambda thread: None):
    """True if the call, on a thread of its own, returned after the release of the held stream.

    A loaded machine may also say so of a call that does not wait.
    """
    things, found = Things(), []
    begun = threading.Event()

    def run():
        ok(driver.cuCtxSetCurrent(context))
        begun.set()
        answer = call(things)
        # What the word was when the call returned.
        found.append((code(answer), things.word.value))

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    # Other threads' calls on other streams go on meanwhile.
    for _ in range(50):
        ok(driver.cuMemsetD8Async(things.memory, 0, 64, things.side))
        ok(driver.cuStreamSynchronize(things.side))
    before_release(thread)
    things.word.value = 1
    thread.join()
    ok(driver.cuCtxSynchronize())
    ((failed, word),) = found
    assert not failed
    return word == 1


@pytest.mark.parametrize("name", WAITING)
def test_a_call_returns_after_the_held_stream(context, name):
    assert waited(context, WAITING[name])


def test_a_call_that_does_not_wait_is_told_apart(context):
    """The check can fail."""
    assert not waited(context, RETURNING["device to pinned"], threading.Thread.join)
