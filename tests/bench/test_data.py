"""The contenders of bench_data decode all photographs in order, and a lost one is noticed."""

from __future__ import annotations

import bench_data
import numpy as np
import pytest

from bench.data import photographs
from bench.data.peers import Cudasync, Loop, Unordered


class Forgetful(Loop):
    def batches(self, paths, size):
        return super().batches(paths[:-1], size)


@pytest.mark.parametrize("way", [Cudasync(1), Cudasync(2), Cudasync(1, processes=True)])
def test_a_way_makes_the_batches_of_the_loop(way):
    everything = photographs.paths(3)
    for mine, plain in zip(way.batches(everything, 2), Loop().batches(everything, 2), strict=True):
        np.testing.assert_array_equal(mine, plain)


def test_a_photograph_that_is_left_out_is_seen():
    everything = photographs.paths(3)
    sums = [bench_data.decoding(way, everything).checksum() for way in (Loop(), Forgetful())]
    assert sums[0] != sums[1]


def test_the_bound_decodes_every_photograph(monkeypatch):
    seen = []
    monkeypatch.setattr("bench.data.peers.decode", seen.append)
    bound = Unordered(2)
    with bound.pool:
        assert list(bound.batches(["a", "b", "c"], 2)) == []
    assert sorted(seen) == ["a", "b", "c"]
