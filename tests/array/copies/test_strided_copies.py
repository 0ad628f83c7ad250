"""Copies of views with gaps, between any two places, and from device to device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.testing import Latch

VIEWS = {
    "whole": lambda x: x,
    "steps": lambda x: x[::2, :, 1::3],
    "backwards": lambda x: x[::-1, 2:0:-1],
    "one column": lambda x: x[:, :, 3],
    "a row": lambda x: x[1, 2],
    "four axes": lambda x: x[::2, None, ::2, ::-5],
    "nothing": lambda x: x[:0, ::2],
    "one": lambda x: x[1, 1, 1, ...],
}
SHAPE = (4, 3, 8)
PLACES = ["pageable", "pinned", "device 0", "device 1"]
DTYPES = ["u1", "i2", "f4", "f8", "c16", "V3"]


def values(dtype, start=0):
    count = int(np.prod(SHAPE)) * np.dtype(dtype).itemsize
    return (np.arange(count) + start).astype(np.uint8).view(dtype).reshape(SHAPE)


def at(place, host):
    """A copy of `host` at this place."""
    if place.startswith("device"):
        return cs.array(host, device=int(place[-1]) % cs.device_count())
    made = np.empty_like(host) if place == "pageable" else cs.pinned_empty(host.shape, host.dtype)
    made[...] = host
    return made


def fetched(array):
    if isinstance(array, cs.Array):
        return array.numpy()
    cs.engine().push(lambda: None, reads=[array]).wait()
    return array


@given(
    st.sampled_from(PLACES),
    st.sampled_from(PLACES),
    st.sampled_from(sorted(VIEWS)),
    st.sampled_from(sorted(VIEWS)),
    st.sampled_from(DTYPES),
    st.sampled_from(["async", "serial"]),
)
def test_any_view_is_copied_to_any_view_anywhere(to, of, index, other, dtype, kind):
    with cs.Engine(kind):
        hosts = values(dtype), values(dtype, 77)
        target, source = at(to, hosts[0]), at(of, hosts[1])
        if VIEWS[index](hosts[0]).shape != VIEWS[other](hosts[1]).shape:
            other = index
        cs.copy(VIEWS[index](target), VIEWS[other](source), name="apart")
        VIEWS[index](hosts[0])[...] = VIEWS[other](hosts[1])
        # Bytes in the gaps stay unchanged.
        assert fetched(target).tobytes() == hosts[0].tobytes()
        assert fetched(source).tobytes() == hosts[1].tobytes()


def test_views_of_one_array_may_overlap():
    with cs.Engine():
        for target, source in ((slice(0, 8, 2), slice(0, 4)), (slice(7, 3, -1), slice(2, 6))):
            host = np.arange(8, dtype=np.float32)
            x = cs.array(host)
            cs.copy(x[target], x[source])
            host[target] = host[source].copy()
            assert x.numpy().tolist() == host.tolist()


def test_nothing_waits_and_later_ops_come_after_all_of_it():
    device = cs.Device(0)
    with cs.Engine() as engine, Latch(device) as latch:
        x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32, device=cs.device_count() - 1)
        host, back = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)

        def copies():
            return [cs.copy(x[::2], host[::2]), cs.copy(y[1::2], x[::2]), cs.copy(back[::-1], y)]

        # Once before: a driver loads a kernel only once the device is idle.
        copies()
        engine.waitall()
        x[:] = 0
        y[:] = 0
        back[:] = 0
        engine.waitall()
        engine.push(latch.hold, writes=[x], device=device)
        ops = copies()
        assert not any(op.done() for op in ops)
        latch.release()
        ops[-1].wait()
        assert back[::-1].tolist() == [0, 0, 0, 2, 0, 4, 0, 6]


@pytest.mark.parametrize("index", [slice(None), slice(None, None, 2), slice(None, None, -1)])
def test_a_failure_is_carried_through_and_an_overwrite_heals(index):
    def fail():
        raise ValueError("no data")

    other = cs.device_count() - 1
    with cs.Engine() as engine:
        source, target = cs.zeros(8, np.int32), cs.zeros(8, np.int32, device=other)
        host = np.zeros(8, np.int32)
        engine.push(fail, writes=[source], name="the one")
        cs.copy(target[index], source[index])
        cs.copy(host[index], target[index])
        for each in (target, host):
            with pytest.raises(cs.OpError, match="'the one'"):
                engine.push(lambda: None, reads=[each]).wait()
        engine.clear_errors()


def test_a_whole_view_in_another_order_is_overwritten_whole():
    def fail():
        raise ValueError("no data")

    with cs.Engine() as engine:
        x = cs.zeros(8, np.int32)
        engine.push(fail, writes=[x])
        cs.copy(x[::-1], cs.array(np.arange(8, dtype=np.int32)))
        assert x.numpy().tolist() == list(range(8))[::-1]
        engine.clear_errors()


# Copies from device to device.


def test_an_array_goes_to_another_device_and_stays_where_it_is():
    there = cs.device_count() - 1
    with cs.Engine():
        x = cs.array(np.arange(24, dtype=np.float64).reshape(4, 6))
        for view in (x, x[1:], x[::2, ::-3], x[:0]):
            moved = view.to_device(there)
            assert moved.device is cs.Device(there)
            assert moved.numpy().tolist() == view.numpy().tolist()
            assert moved.is_contiguous or moved is view
            assert view.to_device(0) is view
            assert moved.to_device(cs.Device(there)) is moved
            assert moved.to_device(0).numpy().tolist() == view.numpy().tolist()


def test_what_is_no_device_is_refused():
    x = cs.zeros(4)
    with pytest.raises(TypeError, match="device= takes a Device or its ordinal"):
        x.to_device("gpu")
    with pytest.raises(ValueError, match="there is no device 99"):
        x.to_device(99)
    with pytest.raises(ValueError, match="leave stream= out"):
        x.to_device(0, stream=cs.Stream())


def test_buffers_take_part_with_views_of_as_many_bytes():
    with cs.Engine():
        buffer, x = cs.DeviceBuffer(16, 0), cs.array(np.arange(8, dtype=np.int32))
        cs.copy(buffer, x[::2])
        y = cs.zeros(8, np.int32)
        cs.copy(y[1::2], buffer)
        assert y.numpy().tolist() == [0, 0, 0, 2, 0, 4, 0, 6]
        with pytest.raises(ValueError, match="12 bytes to 16 bytes"):
            cs.copy(buffer, x[:6:2])
        with pytest.raises(ValueError, match="shape"):
            cs.copy(x[::2], x[1::3])
