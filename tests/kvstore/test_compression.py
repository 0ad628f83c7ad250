"""Compressed sums equal a loop over numbers, and residuals come with later pushes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.kvstore import compression


def sent_of(kind, x):
    if kind == "1bit":
        return 1.0 if x > 0.5 else -1.0
    return 0.5 if x >= 0.5 else -0.5 if x <= -0.5 else 0.0


@pytest.mark.parametrize("place", ["local", "device"])
@pytest.mark.parametrize("kind", ["1bit", "2bit"])
def test_sums_are_of_few_values_and_residuals_are_kept(kind, place):
    store, out = cs.kvstore.create(place), cs.empty(6)
    store.set_gradient_compression({"type": kind, "threshold": 0.5})
    store.init("g", cs.zeros(6))
    # The numbers are multiples of 1/8, so every sum is exact.
    values = np.random.default_rng(5).integers(-8, 9, (5, 2, 6)) / 8
    residual = np.zeros((2, 6))
    for pair in values:
        store.pushpull("g", [cs.array(x.astype(np.float32)) for x in pair], out)
        expected = np.zeros(6)
        for device in range(2):
            for at in range(6):
                residual[device, at] += pair[device, at]
                sent = sent_of(kind, residual[device, at])
                residual[device, at] -= sent
                expected[at] += sent
        assert out.numpy().tolist() == expected.tolist()


SPECIAL = (np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0)


def left_over(pushes, kind, place):
    """What a store sends for each number of a place, beside numbers without those not finite."""
    store, out = cs.kvstore.create(place), cs.empty(len(pushes[0]))
    store.set_gradient_compression({"type": kind, "threshold": 0.5})
    store.init("g", cs.zeros(len(pushes[0])))
    residual, found, wanted = np.zeros(len(pushes[0]), np.float32), [], []
    with np.errstate(all="ignore"):
        for row in pushes:
            row = np.array(row, np.float32)
            store.pushpull("g", cs.array(row), out)
            found.append(out.numpy().tolist())
            total = residual + row
            sent = np.array([sent_of(kind, x) for x in total], np.float32)
            residual = np.where(np.isfinite(total), total - sent, np.float32(0))
            wanted.append(sent.tolist())
    return found, wanted


numbers = st.one_of(st.sampled_from(SPECIAL), st.integers(-8, 8).map(lambda n: n / 8))


@given(
    pushes=st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=8),
    kind=st.sampled_from(("1bit", "2bit")),
    place=st.sampled_from(("local", "device")),
)
@example([[np.inf, np.nan, -np.inf], [-1, 1, 1], [-1, -1, 1]], "2bit", "local")
def test_a_number_that_is_not_finite_counts_once(pushes, kind, place):
    found, wanted = left_over(pushes, kind, place)
    assert found == wanted


def test_a_residual_that_keeps_infinity_is_found(monkeypatch):
    plain = compression.Compression.__call__

    def keeps(self, *arguments):
        self._left = compression.Elementwise(lambda x, sent: x - sent)
        return plain(self, *arguments)

    monkeypatch.setattr(compression.Compression, "__call__", keeps)
    found, wanted = left_over([[np.inf, 1], [-1, 1]], "2bit", "local")
    assert found != wanted


@pytest.mark.parametrize(
    "settings",
    [{"type": "4bit"}, {"type": "2bit", "threshold": 0}, {"type": "2bit", "threshold": "x"}],
)
def test_other_compressions_are_refused(settings):
    with pytest.raises(ValueError):  # noqa: PT011
        cs.kvstore.create().set_gradient_compression(settings)


def test_integers_are_not_compressed():
    store = cs.kvstore.create()
    store.set_gradient_compression({"type": "2bit"})
    store.init("n", cs.zeros(3, np.int32))
    with pytest.raises(TypeError, match="floats"):
        store.push("n", cs.zeros(3, np.int32))
