"""The cost of a driver call in counts: Python functions, C functions, and objects that stay alive.

Benchmarks measure times. These counts make up the times, and do not depend on the machine.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import Counter

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok

PTX = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry none()
{
    ret;
}
.visible .entry three(.param .u64 three_data, .param .u32 three_count, .param .f32 three_factor)
{
    ret;
}
"""


class Arguments(ctypes.Structure):
    """Arguments of the second kernel, at one address, so that no call depends on the allocator."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("factor", ctypes.c_float),
        ("pointers", ctypes.c_void_p * 3),
    )

    def __init__(self):
        super().__init__(4096, 7, 0.5)
        start = ctypes.addressof(self)
        self.pointers[:] = [start, start + 8, start + 12]


@pytest.fixture
def calls(context):
    """Calls by name, each as a program makes it, on a stream that has work to do."""
    stream, other = ok(driver.cuStreamCreate(1)), ok(driver.cuStreamCreate(1))
    event, far = ok(driver.cuEventCreate(2)), ok(driver.cuEventCreate(2))
    module = ok(driver.cuModuleLoadData(PTX))
    none, three = (ok(driver.cuModuleGetFunction(module, n)) for n in (b"none", b"three"))

    three_arguments = Arguments()
    pointers = ctypes.addressof(three_arguments) + Arguments.pointers.offset

    def launch(kernel, arguments, on=stream):
        return driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, on, arguments, 0)

    launch(none, 0, other)
    launch(none, 0)
    ok(driver.cuEventRecord(far, other))
    return {
        "query of an idle stream": lambda: driver.cuStreamQuery(idle),
        "record": lambda: driver.cuEventRecord(event, stream),
        "wait": lambda: driver.cuStreamWaitEvent(stream, far, 0),
        "launch": lambda: launch(none, 0),
        "launch with arguments": lambda: launch(three, pointers if three_arguments else 0),
    } | {"": (idle := ok(driver.cuStreamCreate(1)))}


# Limits by call: Python functions entered, C functions called, and objects that a hundred calls
# leave to the garbage collector.
COSTS = {
    "query of an idle stream": (5, 1, 5),
    "record": (4, 3, 5),
    "wait": (3, 2, 5),
    "launch": (5, 8, 110),
    "launch with arguments": (5, 9, 110),
}


def entered_by(call):
    """Functions that a call enters, by kind of event. The bindings' own functions do not show."""
    seen = Counter()

    def note(frame, event, _argument):
        if "softgpu/" in frame.f_code.co_filename.replace(__file__, ""):
            seen[event] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen["call"], seen["c_call"]


def kept_by(call):
    """Count the objects that a hundred calls leave for the garbage collector.

    The result is the least of three counts: a list that grows now and then, for this call or for
    another thread, is not a cost of each call.
    """

    def kept_once():
        gc.collect()
        before = gc.get_count()[0]
        for _ in range(100):
            call()
        return gc.get_count()[0] - before

    gc.disable()
    try:
        return min(kept_once() for _ in range(3))
    finally:
        gc.enable()


@pytest.mark.lazy
@pytest.mark.parametrize("name", COSTS)
def test_a_call_enters_no_more_functions_and_keeps_no_more_objects(calls, name):
    call = calls[name]
    functions, c_functions, objects = COSTS[name]
    for _ in range(3):
        ok(call())
    found = entered_by(call)
    kept = kept_by(call)
    assert found[0] <= functions
    assert found[1] <= c_functions
    assert kept <= objects
    ok(driver.cuCtxSynchronize())


@pytest.mark.lazy
def test_what_is_counted_is_what_a_call_does(calls):
    """A shape's first launch does more; a record on the default stream makes a command."""
    before = entered_by(calls["launch with arguments"])
    assert before[0] > entered_by(calls["launch with arguments"])[0]
    event = ok(driver.cuEventCreate(2))
    assert kept_by(lambda: driver.cuEventRecord(event, 0)) > 90
    ok(driver.cuCtxSynchronize())
