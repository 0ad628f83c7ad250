"""Views as another dtype, and contiguous copies: NumPy's result, or NumPy's refusal."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import cudasync as cs
from cudasync.array.copies import gather_scatter
from cudasync.testing import HostLatch, arrays

DTYPES = ["u1", "i2", "f2", "f4", "u4", "f8", "c8", "c16", "V3", "f4, i2"]


@st.composite
def views(draw):
    """A host array, and an index that gives a view of it."""
    # Without gaps, as its copy on the device is: NumPy's views depend on them.
    host = np.array(
        draw(arrays(draw(st.sampled_from(DTYPES)), most_dims=5, most_side=5)), order="C"
    )
    return host, draw(basic_indices(host.shape, allow_newaxis=True))


def bytes_of(array):
    return np.ascontiguousarray(array).tobytes()


@given(views())
def test_a_copy_has_the_elements_of_the_view_and_no_gaps(drawn):
    host, index = drawn
    view = cs.array(host)[index]
    made = view.copy()
    assert (made.shape, made.dtype) == (view.shape, view.dtype)
    assert made.is_contiguous
    assert not made.nbytes or made.ptr != view.ptr
    assert bytes_of(made.numpy()) == bytes_of(host[index])


@given(views(), st.sampled_from(DTYPES))
def test_a_view_as_another_dtype_is_numpys_or_refused_as_there(drawn, dtype):
    host, index = drawn
    ours, theirs = cs.array(host)[index], np.asarray(host[index])
    try:
        expected = theirs.view(dtype)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            ours.view(dtype)
        return
    view = ours.view(dtype)
    assert (view.shape, view.dtype, view.ptr) == (expected.shape, expected.dtype, ours.ptr)
    assert view.is_contiguous is expected.flags.c_contiguous
    assert bytes_of(view.numpy()) == bytes_of(expected)


def test_a_view_as_another_dtype_shares_the_memory():
    x = cs.zeros(4)
    cs.copy(x, np.arange(4, dtype=np.float32))
    bits = x.view(np.uint32)
    cs.copy(bits[:1], np.full(1, 0x40000000, np.uint32))
    assert x.numpy().tolist() == [2, 1, 2, 3]


def test_python_objects_are_no_dtype_of_a_view():
    with pytest.raises(TypeError, match="fixed size"):
        cs.zeros(4).view(object)


def test_a_copy_waits_for_nobody_and_comes_after_the_writers():
    """The host op that fills the source is blocked until the copy is made."""
    with cs.Engine() as engine, HostLatch() as latch:
        host, x = cs.pinned_empty((4, 4), np.int32), cs.zeros((4, 4), np.int32)

        def fill():
            latch.wait()
            host[:] = np.arange(16).reshape(4, 4)

        engine.push(fill, writes=[host])
        cs.copy(x, host)
        made = x[:, ::2].copy()
        latch.release()
        assert made.numpy().tolist() == [[0, 2], [4, 6], [8, 10], [12, 14]]


def test_a_copy_of_many_axes_that_do_not_continue_each_other_takes_several_launches():
    host = np.arange(2 * 3 * 4 * 5 * 6).reshape(2, 3, 4, 5, 6)
    index = np.s_[::-1, ::2, ::-1, ::2, ::-1]
    with cs.Engine() as engine:
        view = cs.array(host)[index]
        before = engine.statistics().ops
        made = view.copy()
        assert engine.statistics().ops - before == 1 + 2 * 2
        assert (made.numpy() == host[index]).all()


def test_a_merge_that_is_not_one_would_be_noticed(monkeypatch):
    def merged(shape, strides):
        return [(int(np.prod(shape)), strides[-1])]

    monkeypatch.setattr(gather_scatter, "_merged", merged)
    host = np.arange(16).reshape(4, 4)
    assert (cs.array(host)[:, 1:].copy().numpy() != host[:, 1:]).any()


def test_after_a_reset_of_the_device_copies_are_made_again():
    for _ in range(2):
        x = cs.array(np.arange(4))
        assert x[::2].copy().numpy().tolist() == [0, 2]
        cs.waitall()
        del x
        cs.engine().close()
        cs.Device(0).reset()
