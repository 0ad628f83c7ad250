"""`x.numpy(out=...)` copies into the caller's memory."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync import xp


def test_into_pinned_memory_it_is_one_copy_of_the_driver():
    x = cs.array(np.arange(12, dtype=np.int32))
    cs.waitall()
    out = cs.pinned_empty((12,), np.int32)
    with counted_calls() as calls:
        assert x.numpy(out=out) is out
    assert out.tolist() == list(range(12))
    assert {name: n for name, n in calls.items() if "Memcpy" in name} == {"cuMemcpyDtoHAsync": 1}


@pytest.mark.parametrize(
    ("index", "call"),
    [
        (np.s_[:, :4], "cuMemcpy3DAsync"),
        (np.s_[::4], "cuMemcpy3DAsync"),
        (np.s_[:, :20], "cuMemcpyDtoHAsync"),
        (np.s_[:, ::4], "cuMemcpyDtoHAsync"),
    ],
)
def test_of_rows_far_apart_what_lies_between_is_not_fetched(index, call):
    """This also holds without `out`, and takes one call for any strides."""
    host = np.arange(24 * 16, dtype=np.int32).reshape(16, 24)
    x = cs.array(host)
    cs.waitall()
    with counted_calls() as calls:
        found = x[index].numpy()
    assert found.tolist() == host[index].tolist()
    assert found.flags.c_contiguous
    assert found.flags.writeable
    copies = {name: n for name, n in calls.items() if "Memcpy" in name or "Launch" in name}
    assert copies == {call: 1}


@pytest.mark.parametrize("device", [0, "cpu"])
def test_any_layout_on_both_sides(device):
    host = np.arange(24, dtype=np.int32).reshape(4, 6)
    x = xp.asarray(host, device=device)
    target = np.zeros((12, 8), np.int32)
    for view, out in (
        (x[::-1, 1::2], target[::3, 7:1:-2]),
        (x.T, target[:6, :4]),
        (x[:0], target[:0, :6]),
    ):
        expected = view.numpy()
        assert view.numpy(out=out) is out
        assert out.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (np.zeros(3, np.int32), ValueError),
        (np.zeros(4, np.int64), TypeError),
        ([0] * 4, TypeError),
        (np.broadcast_to(np.int32(0), 4), ValueError),
    ],
)
def test_what_does_not_fit_is_refused(out, error):
    with pytest.raises(error):
        cs.zeros(4, np.int32).numpy(out=out)
