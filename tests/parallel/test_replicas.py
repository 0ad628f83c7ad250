"""replicate, scatter and gather: several devices of one process, views and odd sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.parallel import gather, replicas, replicate, scatter
from cudasync.testing import HostLatch, arrays

PLACES = st.lists(st.sampled_from([0, 1, "cpu"]), min_size=1, max_size=4)


def existing(places):
    return [each if each == "cpu" else each % cs.device_count() for each in places]


@st.composite
def views(draw):
    """A NumPy array, slices for a view of it, and an axis."""
    some = arrays(draw(st.sampled_from(["i4", "f4", "u1"])), most_side=7)
    whole = draw(some.filter(lambda host: host.ndim))
    slices = tuple(
        slice(draw(st.integers(0, 2)), None, draw(st.sampled_from([1, 2, -1]))) for _ in whole.shape
    )
    return whole, slices, draw(st.integers(-whole.ndim, whole.ndim - 1))


@given(views(), PLACES, st.sampled_from([0, "cpu"]))
def test_what_is_scattered_and_gathered_is_what_it_was(drawn, places, home):
    host, slices, axis = drawn
    places = existing(places)
    x = xp.asarray(host, device=home)[slices]
    parts = scatter(x, places, axis)
    for part, wanted, device in zip(
        parts, np.array_split(host[slices], len(places), axis), places, strict=True
    ):
        np.testing.assert_array_equal(part.numpy(), wanted, strict=True)
        assert part.device == xp.zeros(1, device=device).device
    np.testing.assert_array_equal(gather(parts, home, axis).numpy(), host[slices], strict=True)


@given(views(), PLACES, st.sampled_from([0, "cpu"]))
def test_replicas_are_copies_on_their_devices(drawn, places, home):
    host, slices, _ = drawn
    x = xp.asarray(host.copy(), device=home)[slices]
    copies = replicate(x, existing(places))
    x[...] = 9
    for each in copies:
        np.testing.assert_array_equal(each.numpy(), host[slices], strict=True)


def test_trees_keep_their_form():
    x = {"a": xp.arange(5), "b": [np.arange(3.0), (xp.ones((4, 2)),)]}
    parts = scatter(x, ["cpu", 0])
    assert [part["a"].numpy().tolist() for part in parts] == [[0, 1, 2], [3, 4]]
    assert parts[1]["b"][1][0].shape == (2, 2)
    whole = gather(parts, "cpu")
    assert whole["b"][0].numpy().tolist() == [0, 1, 2]
    assert isinstance(whole["b"][1], tuple)
    assert [each["a"].numpy().tolist() for each in replicate(x, [0, 0])] == [[0, 1, 2, 3, 4]] * 2


def test_nothing_waits_and_copies_come_behind_what_writes_their_source():
    latch = HostLatch()
    with cs.Engine(workers=2) as engine:
        x = xp.zeros((5,), device="cpu")
        x.wait()
        engine.push(latch.wait, writes=[x])
        x += 1
        parts = scatter(x, ["cpu", 0, "cpu"])
        whole = gather(replicate(parts, [0, "cpu"]), "cpu")
        latch.release()
        assert [each.numpy().tolist() for each in whole] == [[1] * 4, [1] * 4, [1] * 2]


def test_they_are_recorded():
    x = xp.arange(7)
    with cs.graph() as graph:
        back = gather(scatter(x, [0, 0, 0]))
        back += replicate(x, [0])[0]
    exe = graph.instantiate()
    for _ in range(2):
        exe.launch()
        x += 1
    exe.launch()
    assert back.numpy().tolist() == [2 * (each + 2) for each in range(7)]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: replicate(xp.ones(3), []), ValueError),
        (lambda: scatter(xp.ones(()), [0]), ValueError),
        (lambda: scatter(xp.ones(3), [0], axis=1), ValueError),
        (lambda: replicate("text", [0]), TypeError),
        (lambda: gather([]), ValueError),
        (lambda: gather([xp.ones((2, 3)), xp.ones((2, 4))]), ValueError),
        (lambda: gather([xp.ones(2), xp.ones((2, 1))]), ValueError),
        (lambda: gather([xp.ones(2), xp.ones(2, dtype=xp.float64)]), TypeError),
        (lambda: gather([[xp.ones(2)], [xp.ones(2)] * 2]), ValueError),
        (lambda: gather([{"a": xp.ones(2)}, {"b": xp.ones(2)}]), ValueError),
    ],
)
def test_what_can_not_be_handed_out_is_refused(call, kind):
    with pytest.raises(kind):
        call()


def test_a_wrong_share_is_found(monkeypatch):
    """The planted bug: the first part is one too short."""
    shares = replicas.shares

    def short(length, count):
        first, *rest = shares(length, count)
        return [slice(first.start, max(first.stop - 1, 0)), *rest]

    monkeypatch.setattr(replicas, "shares", short)
    with pytest.raises(AssertionError):
        test_what_is_scattered_and_gathered_is_what_it_was.hypothesis.inner_test(
            (np.arange(5), (slice(None),), 0), [0, "cpu"], "cpu"
        )
