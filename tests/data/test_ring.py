"""The ring of batches on a device is never reused too early, under any scheduler.

Its batches equal those of a serial program. The test finds the planted bug: a gather that does not
declare what it overwrites.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import data, xp
from cudasync.data.ring import Slot


def on_device(count, size, depth, workers, keeps):
    """Sums of kernels over each batch, and the kept batches; the loop waits for nothing."""
    samples = np.arange(count * 64, dtype=np.float32).reshape(count, 64)
    pipeline = (
        data.source(samples)
        .map(lambda row: {"x": row + 1, "n": row[0]}, workers=workers)
        .batch(size)
        .prefetch(depth, device=0)
    )
    sums, kept = [], []
    for batch in pipeline:
        sums.append(xp.sum(batch["x"], axis=1))
        if keeps:
            kept.append(batch["x"])
    found = np.concatenate([each.numpy() for each in sums])
    expected = (samples + 1).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    if keeps:
        np.testing.assert_array_equal(np.concatenate([k.numpy() for k in kept]), samples + 1)


@pytest.mark.parametrize("mode", ["async", "serial"])
@given(
    count=st.integers(1, 30), size=st.integers(1, 4), depth=st.integers(1, 3),
    workers=st.integers(1, 2), keeps=st.booleans(),
)  # fmt: skip
def test_batches_are_those_of_a_serial_program(mode, count, size, depth, workers, keeps):
    with cs.Engine(mode):
        on_device(count, size, depth, workers, keeps)


@pytest.mark.lazy
def test_a_gather_that_hides_what_it_overwrites_is_found(monkeypatch):
    monkeypatch.setattr(Slot, "overwritten", lambda self, views: [])
    wrong = 0
    for _ in range(20):
        try:
            on_device(40, 2, 1, 1, True)
        except AssertionError:
            wrong += 1
            break
    assert wrong


def test_pinned_memory_is_bounded_by_the_ring():
    samples = np.zeros((64, 16), np.float32)
    pipeline = data.source(samples).batch(4).prefetch(3, device=0)
    addresses = set()
    whole = Slot.views

    def noted(self, specs):
        views = whole(self, specs)
        addresses.update(each.ctypes.data for each in views)
        return views

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slot, "views", noted)
        assert len(list(pipeline)) == 16
    assert len(addresses) == 3


def test_what_a_device_can_not_hold_is_refused():
    with pytest.raises(data.DataError, match="convert it to numbers"):
        list(data.source(["a", "b"]).batch(2).prefetch(1, device=0))
