"""Two devices at the driver layer: one device refuses the other's objects at once."""

from __future__ import annotations

import textwrap

import pytest
from helpers.repository.fork_server import run_warm

PREPARE = """
import numpy as np, pytest
import cudasync as cs
from cudasync.array.kernels.bundled_ptx import kernel_file
from helpers.driver.call_counts import counted_calls
from helpers.arrays.foreign_arrays import TheirArray
a, b = cs.Device(0), cs.Device(1)
fill = cs.Module.from_file(kernel_file("fill"), device=a).kernel("fill_u32")
one, four = np.uint32(1), np.uint32(4)
words = r"kernel fill_u32 is loaded on Device\\(0\\), argument 2 .* is memory of Device\\(1\\)"
ASK = "DeviceGetAttribute EventQuery PointerGetAttribute StreamQuery CtxSetCurrent"
HARMLESS = {f"cu{each}" for each in ASK.split()}

def refused(call):
    with counted_calls() as calls, pytest.raises(ValueError, match=words) as caught:
        call()
    assert not set(calls) - HARMLESS, calls
    return str(caught.value)
"""


def with_two_devices(body, **environment):
    """Run `body` with two devices; it fails by raising."""
    environment |= {"CUDASYNC_DEVICE": "soft", "CUDASYNC_SOFTGPU_DEVICES": "2"}
    done = run_warm(PREPARE + textwrap.dedent(body), 60, **environment)
    assert done.code == 0, done.err
    assert done.out + done.err == ""


def test_an_array_of_another_device_is_refused():
    with_two_devices("""
        with cs.Engine() as engine:
            theirs = cs.zeros(4, np.uint32, device=1)
            for _ in range(2):
                for x in (theirs, theirs[1:]):
                    refused(lambda: fill.pack((one, x, four)))
                    refused(lambda: cs.launch(fill, grid=1, args=(one, x, four)))
            assert theirs.numpy().tolist() == [0] * 4
    """)


def test_so_are_buffers_views_and_other_libraries_arrays():
    with_two_devices("""
        buffer = cs.DeviceBuffer(16, b)
        foreign = TheirArray(np.zeros(4, np.uint32), on=cs.Stream(b))
        foreign.buffer = buffer
        good = cs.DeviceBuffer(16, a)
        for _ in range(2):
            for bad in (buffer, buffer.view(4, np.uint32), foreign):
                refused(lambda: cs.launch(fill, grid=1, args=(one, bad, four)))
                refused(lambda: fill.pack((one, bad, four)))
                cs.launch(fill, grid=1, args=(one, good, four))
        with pytest.raises(ValueError, match="the stream on Device"):
            cs.launch(fill, grid=1, args=(one, good, four), stream=cs.Stream(b))
    """)


def test_each_way_out_that_is_named_works():
    with_two_devices("""
        with cs.Engine():
            x = cs.array(np.arange(4, dtype=np.uint32), device=1)
            said = refused(lambda: cs.launch(fill, grid=1, args=(one, x, np.uint32(2))))
            assert "cs.copy(cs.empty(x.shape, x.dtype, device=0), x)" in said
            assert "cs.Module.from_ptx(..., device=1)" in said
            here = cs.empty(x.shape, x.dtype, device=0)
            cs.copy(here, x)
            fill[1, 2](one, here, np.uint32(2))
            assert here.numpy().tolist() == [1, 1, 2, 3]
            text = kernel_file("fill").read_text()
            there = cs.Module.from_ptx(text, device=1).kernel("fill_u32")
            there[1, 2](one, x, np.uint32(2))
            assert x.numpy().tolist() == [1, 1, 2, 3]
    """)


def test_memory_that_every_device_reaches_is_taken():
    with_two_devices("""
        from cuda.bindings import driver
        pinned = cs.PinnedBuffer(16, b)
        cs.launch(fill, grid=1, block=4, args=(np.uint32(7), pinned, four))
        a.synchronize()
        assert pinned.view(4, np.uint32).tolist() == [7] * 4

        class Told:
            def __init__(self, address):
                self.__cuda_array_interface__ = {
                    "version": 3, "shape": (4,), "typestr": "<u4", "data": (address, False),
                }

        b.use()
        cs.DeviceBuffer(1, b)
        code, managed = driver.cuMemAllocManaged(16, 1)
        assert not code
        for x in (Told(int(managed)), Told(pinned.ptr)):
            fill[1, 4](one, x, four).wait()
            cs.launch(fill, grid=1, block=4, args=(one, x, four))
        a.synchronize()
        assert pinned.view(4, np.uint32).tolist() == [1] * 4
    """)


def test_a_device_is_meant_by_its_ordinal_wherever_one_is_asked_for():
    with_two_devices("""
        from cudasync.testing import Latch
        text = kernel_file("fill").read_text()
        a.use()
        made = [
            cs.Stream(1), cs.Event(1), cs.DeviceBuffer(4, 1), cs.Module.from_ptx(text, device=1),
            cs.Module.from_file(kernel_file("fill"), device=1), cs.Stream.from_handle(1, 1),
            cs.current_stream(1), cs.Stream.from_object(cs.Stream(1), 1), Latch(1),
            cs.zeros(1, device=1), cs.empty(1, device=1), cs.array(1, device=1),
            cs.array(1, device=np.int64(1)),
        ]
        assert {each.device for each in made} == {b}
        cs.PinnedBuffer(4, 1)
        b.use()
        made = [cs.Stream(0), cs.Event(0), cs.DeviceBuffer(4, 0), cs.current_stream(0), Latch(0),
                cs.Stream.from_handle(1, 0), cs.Module.from_ptx(text, device=0)]
        assert {each.device for each in made} == {a}
        with cs.Engine() as engine:
            for device in (0, 1, a, b):
                op = engine.push(lambda stream: stream.device.ordinal, device=device)
                assert op.result() == (device if isinstance(device, int) else device.ordinal)
    """)


MAKERS = [
    "cs.Stream({0})", "cs.Event({0})", "cs.DeviceBuffer(4, {0})", "cs.PinnedBuffer(4, {0})",
    "cs.Module.from_ptx(fill.module.text, device={0})", "cs.zeros(1, device={0})",
    "cs.array(1, device={0})", "cs.current_stream({0})", "cs.Stream.from_handle(1, {0})",
    "cs.engine().push(lambda stream: None, device={0})",
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_no_device_is_refused_alike_by_all(maker):
    with_two_devices(f"""
        with pytest.raises(TypeError, match="device= takes a Device or its ordinal, not str"):
            {maker.format("'cuda'")}
        with pytest.raises(ValueError, match="there is no device 2"):
            {maker.format("2")}
    """)
