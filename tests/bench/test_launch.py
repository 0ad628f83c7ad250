"""Beside times, bench_launch reports counts of bytecodes, and allows for absent peers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from functools import partial

import bench_launch
import pytest
from helpers.repository.checkout import ROOT

from bench.harness import measurement
from bench.harness.bytecodes import bytecodes
from bench.launches import bursts
from bench.launches.peers import PEERS
from bench.launches.rig import Rig


def one():
    return 1


def two():
    return one() + one()


def looped(times):
    for _ in range(times):
        one()


def test_bytecodes_are_those_of_every_function_that_is_entered():
    for each in (one, two, partial(looped, 1)):
        bytecodes(each)
    assert bytecodes(one) > 0
    assert bytecodes(one) == bytecodes(one)
    assert bytecodes(two) > 2 * bytecodes(one)
    ten, twenty, thirty = (bytecodes(partial(looped, times)) for times in (10, 20, 30))
    assert thirty - twenty == twenty - ten >= 10 * bytecodes(one)


def test_counting_leaves_the_tracer_of_its_caller_alone():
    def tracer(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.raises(ZeroDivisionError):
            bytecodes(lambda: 1 / 0)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


@pytest.fixture
def session():
    made = measurement.Session(small=True)
    with made.closing:
        yield made


@pytest.fixture
def rig(session):
    engine, kernel = bursts.prepared(session)
    return Rig(session.closing, engine, kernel, bursts.chain(3), bursts.BLOCK)


def test_a_peer_that_can_not_take_part_is_named_and_the_others_go_on(session, rig, monkeypatch):
    for name in ("cuda.core", "numba", "numba.cuda"):
        monkeypatch.setitem(sys.modules, name, None)
    assert bench_launch.peers_of(session, rig) == {}
    assert set(session.absent) == {peer.name for peer in PEERS}
    assert all(
        "ModuleNotFoundError" in why or "ImportError" in why for why in session.absent.values()
    )


def test_a_peer_that_takes_part_is_a_contender_that_does_the_same_work(session, rig, monkeypatch):
    class Raw:
        name, package = "raw by another name", "cuda-bindings"
        calls = staticmethod(Rig.raw_launches)

    class Lazy(Raw):
        name = "lazy"

        @staticmethod
        def calls(rig):
            return Rig.raw_launches(rig)[1:]

    monkeypatch.setattr(bench_launch, "PEERS", (Raw, Lazy))
    found = bench_launch.peers_of(session, rig)
    assert list(found) == [Raw.name, Lazy.name]
    assert session.versions == {"cuda-bindings": bench_launch.machine.installed("cuda-bindings")}
    made = bench_launch.contenders(rig, bench_launch.nullcontext, found)
    sums = {each.name: each.checksum() for each in made}
    assert sums[Raw.name] == sums[bench_launch.RAW] == sums[bench_launch.CALLED]
    assert sums[Lazy.name] != sums[bench_launch.RAW]


PLANTED_NUMBA = """
import numpy
added = numpy.row_stack([[1], [2]])
"""


def test_numba_cuda_finds_the_name_that_newer_releases_of_numpy_have_not(tmp_path):
    """In that process alone: this one's NumPy stays as it is."""
    package = tmp_path / "numba"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "cuda.py").write_text(PLANTED_NUMBA)
    text = """
        import numpy
        vars(numpy).pop("row_stack", None)
        numpy.__dict__.pop("__getattr__", None)
        from bench.launches.peers import numba_cuda
        print(numba_cuda().added.tolist())
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[[1], [2]]\n"), done.stderr
