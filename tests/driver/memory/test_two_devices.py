"""Two devices in one process: work on one waits for work on the other; mixing them is refused.

The software GPU can have any number of devices, so these tests run in their own process.
"""

from __future__ import annotations

import textwrap

from helpers.repository.fork_server import run_warm

PREPARE = """
import numpy as np, pytest
from cudasync.driver import *
from cudasync.testing import Latch
from helpers.ptx_generators.sample_kernels import FILL
a, b = Device(0), Device(1)
on_a, on_b = Stream(a), Stream(b)
"""


def with_two_devices(body):
    """Run `body` with two devices; an exception in it fails the test."""
    environment = {"CUDASYNC_DEVICE": "soft", "CUDASYNC_SOFTGPU_DEVICES": "2"}
    done = run_warm(PREPARE + textwrap.dedent(body), 60, **environment)
    assert done.code == 0, done.err
    assert done.out + done.err == ""


def test_work_on_one_device_waits_for_work_on_the_other_and_data_crosses():
    with_two_devices("""
        source, back = pinned_empty(4, np.uint8), pinned_empty(4, np.uint8)
        source[:] = 7
        buffer_a, buffer_b = DeviceBuffer(4, a), DeviceBuffer(4, b)
        memset_async(buffer_b, 0, stream=on_b)
        with Latch(a) as latch:
            latch.hold(on_a)
            memcpy_async(buffer_a, source, stream=on_a)
            on_b.wait(on_a)
            memcpy_async(buffer_b, buffer_a, stream=on_b)
            memcpy_async(back, buffer_b, stream=on_b)
            assert not on_b.query()
        on_b.synchronize()
        assert back.tolist() == [7] * 4
    """)


def test_each_verb_goes_to_the_device_of_its_operands_whichever_is_current():
    with_two_devices("""
        kernels = [Module.from_ptx(FILL, device=d).kernel("fill") for d in (a, b)]
        buffers = [DeviceBuffer(4, d) for d in (a, b)]
        host = pinned_empty(2, np.uint32)
        for step in range(3):
            (a, b)[step % 2].use()
            for i in (0, 1):
                launch(kernels[i], grid=1, args=(buffers[i], 10 * step + i, 1))
                memcpy_async(host[i:i + 1], buffers[i])
            a.synchronize(), b.synchronize()
            assert host.tolist() == [10 * step, 10 * step + 1]
        b.use()
        assert current_device() is b and Stream().device is b and DeviceBuffer(4).device is b
        with on_a:
            assert current_device() is a and current_stream(b) is not on_a
            assert DeviceBuffer(4).device is a
    """)


def test_what_belongs_to_one_device_is_refused_on_the_other():
    with_two_devices("""
        kernel = Module.from_ptx(FILL, device=a).kernel("fill")
        with pytest.raises(ValueError, match="loaded on Device.0., the stream on Device.1."):
            launch(kernel, grid=1, args=(DeviceBuffer(4, a), 1, 1), stream=on_b)
        with pytest.raises(ValueError, match="loaded on Device.0., the stream on Device.1."):
            kernel.prepare(grid=1, args=(DeviceBuffer(4, a), 1, 1)).on(on_b)
        with pytest.raises(ValueError, match="event of Device.0. cannot be recorded on Device.1."):
            on_b.record(Event(a))
        with pytest.raises(ValueError, match="Device.0., but the stream belongs to Device.1."):
            DeviceBuffer(4, a, stream=on_b)
    """)


def test_a_fault_on_one_device_leaves_the_other_alone():
    with_two_devices("""
        kernel = Module.from_ptx(FILL, device=a).kernel("fill")
        launch(kernel, grid=1, block=32, args=(DeviceBuffer(4, a), 1, 1000), stream=on_a)
        back, buffer = bytearray(4), DeviceBuffer(4, b)
        memset_async(buffer, 5, stream=on_b)
        with pytest.raises(Exception, match="ILLEGAL_ADDRESS"):
            on_a.synchronize()
        memcpy_async(back, buffer, stream=on_b)
        on_b.synchronize()
        assert bytes(back) == bytes([5] * 4)
        a.reset()
        Stream(a).synchronize()
    """)


def test_a_foreign_stream_is_known_to_be_of_its_device():
    with_two_devices(
        """
        assert Stream.from_handle(on_b.handle).device is b
        assert Stream.from_handle(on_a.handle, b).device is a

        class Theirs:
            def __cuda_stream__(self):
                return (0, on_b.handle)

        # Also while ours has not been on the device yet.
        from cudasync.driver import context
        context._contexts.clear()
        assert Stream.from_object(Theirs()).device is b
        on_a.wait(Theirs())
        on_a.synchronize()
        """
    )


def test_a_default_stream_is_its_devices_whatever_context_a_stranger_left_current():
    with_two_devices(
        """
        from cuda.bindings import driver
        legacy, ready = Stream.from_handle(1, b), Event(b)
        with Latch(b) as latch:
            latch.hold(legacy)
            driver.cuCtxSetCurrent(a.context.handle())
            legacy.record(ready)
            assert not any(ready.query() for _ in range(50))
        ready.synchronize()
        """
    )


def test_memory_of_one_device_is_handed_over_to_a_stream_of_another():
    with_two_devices(
        """
        import cudasync as cs
        from helpers.arrays.foreign_arrays import is_held_up, pinned
        from helpers.arrays.dlpack_tensors import Consumer
        with cs.Engine() as engine, Latch(a) as latch:
            x = cs.zeros(4, np.int32, device=a)
            engine.push(latch.hold, device=a, writes=[x])
            lent = Consumer(x.__dlpack__(stream=on_b.handle))
            assert is_held_up(on_b.query)
            latch.release()
            on_b.synchronize()
            latch.hold(on_a)
            y = cs.zeros(4, np.int32, device=b)
            cs.take_over(y, after=on_a)
            assert is_held_up(engine.push(lambda stream: None, reads=[y], device=b).done)
            latch.release()
            with pytest.raises(BufferError):
                x.__dlpack__(dl_device=(2, 1))
            assert x.__dlpack_device__() == (2, 0) and y.__dlpack_device__() == (2, 1)
            lent.give_back()
        """
    )
