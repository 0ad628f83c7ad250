"""Wrong calls raise their named errors before they reach the driver."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from helpers.ptx_generators.sample_kernels import FILL, SHARED

from cudasync.driver import DeviceBuffer, Event, Module, Stream, launch, memcpy_async, memset_async
from cudasync.errors import ClosedError

# Functions that only query, or make a context current, enqueue nothing.
HARMLESS = ("cuCtxSetCurrent", "cuDeviceGetAttribute", "cuPointerGetAttribute")


@pytest.fixture
def things(device, stream):
    """Operands of the wrong calls."""

    class Things:
        def __init__(self):
            self.stream = stream
            self.device = device
            self.a = DeviceBuffer(16, device)
            self.b = DeviceBuffer(32, device)
            self.closed = DeviceBuffer(16, device)
            self.closed.close()
            self.closed_stream = Stream(device)
            self.closed_stream.close()
            self.closed_event = Event(device)
            self.closed_event.close()
            self.kernel = Module.from_ptx(FILL, device=device).kernel("fill")
            self.shared = Module.from_ptx(SHARED, device=device).kernel("shared")

        def launch(self, *args, grid=(1,), block=(1,), **options):
            options.setdefault("stream", self.stream)
            launch(self.kernel, grid=grid, block=block, args=args or (self.a, 1, 4), **options)

        def copy(self, target, source, **options):
            memcpy_async(target, source, stream=self.stream, **options)

        def fill(self, target, value, **options):
            memset_async(target, value, stream=self.stream, **options)

    return Things()


class Reversed:
    __cuda_array_interface__ = {  # noqa: RUF012
        "version": 3, "shape": (4,), "typestr": "<f4", "strides": (-4,), "data": (4096, False),
    }  # fmt: skip


class ReadOnly:
    __cuda_array_interface__ = {  # noqa: RUF012
        "version": 3, "shape": (16,), "typestr": "|u1", "data": (4096, True),
    }  # fmt: skip


class OfTomorrow:
    def __cuda_stream__(self):
        return (1, 0)


READ_ONLY = np.zeros(16, np.uint8)
READ_ONLY.flags.writeable = False

WRONG = {
    # Copies.
    "sizes that differ": (lambda t: t.copy(t.a, t.b), ValueError, "16 bytes, the source 32"),
    "more than there is": (
        lambda t: t.copy(t.a, t.b, size_bytes=17), ValueError, "size_bytes is 17",
    ),
    "less than nothing": (
        lambda t: t.copy(t.a, t.b, size_bytes=-1), ValueError, "size_bytes is -1",
    ),
    "half a byte": (lambda t: t.copy(t.a, t.b, size_bytes=0.5), TypeError, "float"),
    "to a closed buffer": (lambda t: t.copy(t.closed, bytes(16)), ClosedError, "closed"),
    "from a closed buffer": (lambda t: t.copy(bytearray(16), t.closed), ClosedError, "closed"),
    "to bytes": (lambda t: t.copy(bytes(16), t.a), ValueError, "read-only"),
    "to a read-only array": (lambda t: t.copy(READ_ONLY, t.a), ValueError, "read-only"),
    "to a read-only device array": (lambda t: t.copy(ReadOnly(), t.a), ValueError, "read-only"),
    "from every other element": (
        lambda t: t.copy(t.a, np.zeros(8, np.float32)[::2]), ValueError, "C-contiguous",
    ),
    "from Fortran order": (
        lambda t: t.copy(t.a, np.zeros((2, 2), np.float32, order="F")), ValueError, "C-contiguous",
    ),
    "from a strided memoryview": (
        lambda t: t.copy(t.a, memoryview(bytes(32))[::2]), ValueError, "C-contiguous",
    ),
    "from a reversed device array": (
        lambda t: t.copy(t.a, Reversed()), ValueError, "C-contiguous",
    ),
    "from Python objects": (
        lambda t: t.copy(t.a, np.array([None, None])), TypeError, "Python objects",
    ),
    "from a list": (lambda t: t.copy(t.a, [1, 2, 3, 4]), TypeError, "the source is a list"),
    "to a number": (lambda t: t.copy(4096, t.a), TypeError, "the target is a int"),
    "to nothing": (lambda t: t.copy(None, t.a), TypeError, "the target is a NoneType"),
    # Fills.
    "a fill of host memory": (lambda t: t.fill(bytearray(4), 0), TypeError, "device memory"),
    "a fill with 256": (lambda t: t.fill(t.a, 256), ValueError, "256"),
    "a fill with -1": (lambda t: t.fill(t.a, -1), ValueError, "-1"),
    "a fill with 8 bytes": (lambda t: t.fill(t.a, np.float64(1)), ValueError, "not 8"),
    "a fill with a float": (lambda t: t.fill(t.a, 1.5), TypeError, "float"),
    "a fill past the end": (lambda t: t.fill(t.a, 0, size_bytes=17), ValueError, "17 bytes"),
    "a fill with half a word": (
        lambda t: t.fill(t.a, np.uint32(1), size_bytes=6), ValueError, "6 bytes",
    ),
    "a fill of a closed buffer": (lambda t: t.fill(t.closed, 0), ClosedError, "closed"),
    # Launch arguments.
    "too few arguments": (lambda t: t.launch(t.a), TypeError, "takes 3 arguments, not 1"),
    "too many arguments": (lambda t: t.launch(t.a, 1, 2, 3), TypeError, "3 arguments, not 4"),
    "an argument of another type": (
        lambda t: t.launch(t.a, np.float32(1), 4),
        TypeError, r"argument 2 \(\.u32 value\) does not take a numpy\.float32",
    ),
    "an argument of another width": (
        lambda t: t.launch(t.a, 1, np.int64(4)), TypeError, r"argument 3 \(\.u32 count\)",
    ),
    "an argument out of range": (
        lambda t: t.launch(t.a, 1 << 32, 4), ValueError, r"argument 2 .*4294967296 is not in",
    ),
    "a host array for a pointer": (
        lambda t: t.launch(np.zeros(4), 1, 4), TypeError, "copy it to a DeviceBuffer",
    ),
    "a closed buffer for a pointer": (lambda t: t.launch(t.closed, 1, 4), ClosedError, "closed"),
    "None for a pointer": (lambda t: t.launch(None, 1, 4), TypeError, "NoneType"),
    # Launch shapes.
    "a grid of zero": (lambda t: t.launch(grid=(0,)), ValueError, "from 1 to 2147483647"),
    "a negative grid": (lambda t: t.launch(grid=(1, -1)), ValueError, "y is -1"),
    "a grid too high": (lambda t: t.launch(grid=(1, 65536)), ValueError, "from 1 to 65535"),
    "a block too wide": (lambda t: t.launch(block=(1025,)), ValueError, "from 1 to 1024"),
    "a block too deep": (lambda t: t.launch(block=(1, 1, 65)), ValueError, "from 1 to 64"),
    "too many threads": (
        lambda t: t.launch(block=(64, 32)), ValueError, "2048 threads, at most 1024",
    ),
    "four dimensions": (lambda t: t.launch(grid=(1, 1, 1, 1)), ValueError, "not 4"),
    "no dimension": (lambda t: t.launch(block=()), ValueError, "not 0"),
    "half a block": (lambda t: t.launch(block=(0.5,)), TypeError, "block takes one to three"),
    "a grid in words": (lambda t: t.launch(grid="many"), TypeError, "grid takes one to three"),
    "negative shared memory": (lambda t: t.launch(shared_bytes=-4), ValueError, "-4"),
    "too much shared memory": (
        lambda t: t.launch(shared_bytes=1 << 24), ValueError, "for a block",
    ),
    # Streams and events.
    "a number for a stream": (lambda t: t.launch(stream=7), TypeError, "int is not a stream"),
    "a stream of another protocol": (
        lambda t: t.launch(stream=OfTomorrow()), ValueError, "version 1",
    ),
    "a closed stream": (lambda t: t.launch(stream=t.closed_stream), ClosedError, "closed"),
    "a wait for a closed event": (
        lambda t: t.stream.wait(t.closed_event), ClosedError, "event is closed",
    ),
    "a wait for a number": (lambda t: t.stream.wait(5), TypeError, "int is not a stream"),
    "a record of a closed event": (
        lambda t: t.stream.record(t.closed_event), ClosedError, "event is closed",
    ),
    "a Python function for the driver's thread": (
        lambda t: t.stream.launch_host(print), TypeError, "must not run on the driver's thread",
    ),
    "a host function at 0": (lambda t: t.stream.launch_host(0), ValueError, "is 0"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_call_gets_its_error_before_anything_is_enqueued(things, call, kind, says):
    with counted_calls() as calls, pytest.raises(kind, match=says):
        call(things)
    assert not [name for name in calls if name not in HARMLESS], calls


def test_after_a_wrong_call_the_right_one_works(things):
    with pytest.raises(TypeError):
        things.launch(things.a)
    things.launch()
    things.stream.synchronize()
