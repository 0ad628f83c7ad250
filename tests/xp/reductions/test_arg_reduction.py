"""Indices found in long rows, in one part of them, and launches that are one op."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.array.reductions import arg_reduction, operation, plan


def long_rows(dtype):
    """Rows with more parts than a first launch leaves to stages, with equal values in all parts."""
    host = np.random.default_rng(3).integers(0, 50, (2, 16384 * arg_reduction._LEAST_PARTS + 77))
    host[1, 40000] = host[1, 90000] = 50
    return host.astype(dtype)


def agree(name, host, axis):
    found = getattr(xp, name)(xp.asarray(host), axis=axis).numpy()
    return np.array_equal(found, getattr(host, name)(axis=axis))


def agree_everywhere(hosts):
    names, axes = ("argmax", "argmin"), (None, 1)
    return all(agree(*case) for case in itertools.product(names, hosts, axes))


def test_places_in_long_rows_are_the_first(monkeypatch):
    seen = []
    monkeypatch.setattr(operation, "_plans", {})
    monkeypatch.setattr(
        plan, "Finding", lambda *job: seen.append(job) or arg_reduction.Finding(*job)
    )
    host = long_rows(np.float32)
    missing = host.copy()
    missing[0, 70000] = missing[:, 120000] = np.nan
    everywhere = np.full_like(host, np.inf)
    assert agree_everywhere([host, missing, everywhere, -everywhere])
    # Two functions along two axes make four plans, which the equal hosts share.
    assert len(seen) == 4


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.float64])
def test_places_in_long_rows_of_another_dtype_are_the_first(dtype):
    assert agree_everywhere([long_rows(dtype)])


@pytest.mark.parametrize(
    "change",
    [("chosen[0].place", "0"), ("chosen[0].place", "chosen[0].place + 1")],
    ids=["the first part", "the next part"],
)
def test_a_place_in_another_part_is_found(change, monkeypatch):
    right = arg_reduction.source
    monkeypatch.setattr(arg_reduction, "source", lambda *job: right(*job).replace(*change))
    monkeypatch.setattr(operation, "_plans", {})
    host = long_rows(np.int32)
    assert not agree("argmax", host, 1)


def test_a_recorded_search_of_long_rows_finds_the_same():
    host = long_rows(np.int32)
    x = cs.array(host)
    with cs.graph() as g:
        found = xp.argmax(x, axis=1)
    g.instantiate().launch().wait()
    assert found.numpy().tolist() == host.argmax(axis=1).tolist()


def test_two_launches_of_a_reduction_are_one_op():
    x = cs.array((np.arange(40000) % 7).astype(np.float32))
    pushed = []
    with cs.Engine() as engine:
        for _ in range(5):
            before = engine.statistics().device_ops
            found = xp.max(x)
            cs.waitall()
            pushed.append(engine.statistics().device_ops - before)
            assert float(found) == 6
    # The first call allocates, and any call may free garbage of an earlier test.
    assert min(pushed) == 1
