"""The contenders of bench_collectives compute the same sum, and the hidden share is per round."""

from __future__ import annotations

import zlib

import bench_collectives
import numpy as np
import pytest
from helpers.distributed.ranks import lacks_mpi

import cudasync as cs
from bench.distributed import collective_ranks
from bench.distributed.collectives_by_hand import ByHand, Ours, numbers
from bench.harness import measurement


@pytest.mark.skipif(cs.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("length", [512, 1 << 15])
def test_by_hand_and_by_the_communicator_devices_get_numpy_s_sum(length):
    row = (numbers(length, 0) + numbers(length, 1)).tobytes()
    wanted = zlib.crc32(row, zlib.crc32(row))
    session = measurement.Session(small=True)
    with session.closing:
        for kind in (ByHand, Ours):
            made = kind(session.closing, length)
            assert made.checksum() == wanted
            made.run()
            assert made.checksum() == wanted


def test_the_share_that_is_not_hidden_is_of_the_same_round():
    """The machine is ten times slower in the second round. Half is hidden in both rounds."""
    times = {"transfer": [2.0, 20.0], "other": [3.0, 30.0], "both": [4.0, 40.0]}
    contenders = [measurement.Contender(name, lambda loops: 0.0, None) for name in times]
    session = measurement.Session(small=True)
    case = measurement.Case("case", contenders, "transfer")
    for name, taken in times.items():
        session.samples["case", name] = measurement.Samples(1, dict(enumerate(taken)))
    bench_collectives.conclude(session, case, 0.15)
    (measure,) = session.measures
    assert (measure["value"], measure["met"]) == (0.5, False)
    bench_collectives.conclude(session, case, 0.5)
    assert session.measures[1]["met"]


def test_without_an_mpi_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(bench_collectives, "lacking", lambda: "no mpi4py")
    session = measurement.Session(small=True)
    with session.closing:
        bench_collectives.build(session)
    assert session.absent[bench_collectives.BARE] == "no mpi4py"


@pytest.mark.skipif(bool(lacks_mpi()), reason=lacks_mpi())
def test_contenders_between_processes_get_numpy_s_sum():
    session = measurement.Session(small=True)
    with session.closing:
        ranks = collective_ranks.Ranks(session.closing)
        row = sum((np.arange(100) % 1000 + rank).astype(np.float32) for rank in range(2))
        wanted = zlib.crc32(row.tobytes())
        for method in ("bare", "ours"):
            assert ranks.ask("checksum", method, 400) == [wanted] * 2
            assert all(seconds > 0 for seconds in ranks.ask("run", method, 400, 2))
