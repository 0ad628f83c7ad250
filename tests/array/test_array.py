"""Arrays hold the values that NumPy holds, in any view; and memory is allocated and freed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import cudasync as cs
from cudasync.testing import HostLatch, arrays

DTYPES = ["u1", "i4", "f4", "f8", "c8", "?"]


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: arrays(dtype, most_dims=4)), st.data())
def test_an_array_holds_what_numpy_holds_through_any_view(host, data):
    device = cs.array(host)
    assert (device.shape, device.dtype, device.nbytes) == (host.shape, host.dtype, host.nbytes)
    if host.ndim:
        index = data.draw(hnp.basic_indices(host.shape, allow_newaxis=True))
        host, device = host[index], device[index]
    result = device.numpy()
    assert (result.shape, result.dtype) == (np.shape(host), host.dtype)
    assert result.tobytes() == host.tobytes()


def test_the_source_may_change_as_soon_as_array_returns():
    host = np.arange(1000)
    device = cs.array(host)
    host[:] = -1
    assert device.numpy().tolist() == list(range(1000))


def test_arrays_take_anything_numpy_does():
    assert cs.array([1, 2, 3]).numpy().tolist() == [1, 2, 3]
    assert cs.array(3.5, np.float32).numpy() == np.float32(3.5)
    assert cs.array([[1, 2], [3, 4]], dtype=np.float64).shape == (2, 2)
    assert cs.array(np.arange(10)[::2]).numpy().tolist() == [0, 2, 4, 6, 8]


def test_zeros_and_empty_have_the_shape_asked_for():
    assert cs.zeros((2, 3), np.int16).numpy().tolist() == [[0] * 3] * 2
    assert cs.zeros(0).numpy().shape == (0,)
    like = cs.empty_like(cs.empty((4, 5), np.float64)[::2])
    assert (like.shape, like.dtype, like.is_contiguous) == ((2, 5), np.float64, True)
    assert cs.zeros_like(like).numpy().sum() == 0


def test_views_share_memory():
    whole = cs.zeros((4, 4), np.int32)
    row = whole[2]
    cs.copy(row, np.arange(4, dtype=np.int32))
    assert whole.numpy()[2].tolist() == [0, 1, 2, 3]
    assert whole.reshape(2, -1)[1, 0].numpy() == 0
    assert whole.reshape((16,))[9].numpy() == 1
    assert len(whole) == 4
    assert [part.shape for part in whole] == [(4,)] * 4


def test_a_view_keeps_the_memory_alive():
    view = cs.array(np.arange(100))[10:20]
    filler = [cs.zeros(100, np.int64) for _ in range(10)]
    assert view.numpy().tolist() == list(range(10, 20))
    assert len(filler) == 10


def test_reading_waits_for_the_writers_of_this_array_only():
    with cs.Engine() as engine, HostLatch() as latch:
        x, y = cs.array([1]), cs.array([2])
        engine.push(latch.wait, writes=[y])
        assert x.numpy().tolist() == [1]
        x.wait()
        with pytest.raises(TimeoutError):
            y.wait(timeout=0.01)
        latch.release()


def test_the_cuda_array_interface_describes_the_view():
    whole = cs.zeros((4, 6), np.float32)
    interface = whole[1:3, ::2].__cuda_array_interface__
    assert interface["shape"] == (2, 3)
    assert interface["strides"] == (24, 8)
    assert interface["data"] == (whole.ptr + 24, False)
    assert interface["typestr"] == "<f4"
    assert whole.__cuda_array_interface__["strides"] is None


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: cs.array(["text", object()]), TypeError),
        (lambda: cs.empty((-1,)), ValueError),
        (lambda: cs.empty((1.5,)), TypeError),
        (lambda: cs.empty(4)[4], IndexError),
        (lambda: cs.empty(4)[0, 0], IndexError),
        (lambda: cs.empty(4)[..., ...], IndexError),
        (lambda: cs.empty(4)["a"], TypeError),
        (lambda: cs.empty(4).reshape(3), ValueError),
        (lambda: cs.empty(4).reshape(-1, -1), ValueError),
        (lambda: cs.empty(4)[::2].reshape(2), ValueError),
        (lambda: len(cs.empty(())), TypeError),
        (lambda: cs.empty(4, device=99), ValueError),
    ],
)
def test_misuse_is_refused_at_once(wrong, error):
    with pytest.raises(error):
        wrong()


def test_too_much_memory_is_an_error_of_the_driver_and_no_poison():
    with cs.Engine():
        with pytest.raises(cs.CudaError, match="OUT_OF_MEMORY"):
            cs.empty(1 << 50, np.uint8)
        assert cs.array([1]).numpy().tolist() == [1]
