"""Compressed sums equal a loop over numbers, and residuals come with later pushes."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs


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


@pytest.mark.parametrize(
    "given",
    [{"type": "4bit"}, {"type": "2bit", "threshold": 0}, {"type": "2bit", "threshold": "x"}],
)
def test_other_compressions_are_refused(given):
    with pytest.raises(ValueError):  # noqa: PT011
        cs.kvstore.create().set_gradient_compression(given)


def test_integers_are_not_compressed():
    store = cs.kvstore.create()
    store.set_gradient_compression({"type": "2bit"})
    store.init("n", cs.zeros(3, np.int32))
    with pytest.raises(TypeError, match="floats"):
        store.push("n", cs.zeros(3, np.int32))
