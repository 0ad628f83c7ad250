"""The communicator between GPUs: refusals, and calls compared with a reference, without a GPU.

NCCL itself is tested with as many ranks as there are GPUs, and not at all without one.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from helpers.distributed.collective_programs import (
    expected,
    place,
    programs,
    raise_unless_same,
    results,
    run,
)
from helpers.distributed.reference_nccl import ReferenceNccl, held
from hypothesis import HealthCheck, given, settings

import cudasync as cs
from cudasync.distributed import initialisation, nccl_library
from cudasync.distributed.side_streams import StreamsBeside

PATIENCE_S = 40


@pytest.fixture
def nccl(monkeypatch):
    """`nccl(timeout)`: a communicator that calls the reference, or a library given to it.

    It has one rank, or one rank on each of several devices.
    """
    for launcher in initialisation._LAUNCHERS:
        monkeypatch.delenv(launcher, raising=False)
    made = []

    def make(timeout=300.0, reference=None, size=1):
        found = reference or ReferenceNccl(size)
        monkeypatch.setattr(nccl_library, "library", lambda: found)
        devices = None if size == 1 else range(size)
        made.append(cs.distributed.init("nccl", devices=devices, timeout=timeout))
        return made[-1], found

    yield make
    for each in made:
        each.close()


def test_without_a_gpu_it_is_refused_and_info_says_why():
    if cs.driver.probe.chosen()[0] == "cuda":
        pytest.skip("there is a GPU")
    with pytest.raises(
        cs.distributed.BackendUnavailable, match="NVIDIA GPUs, and this process uses none"
    ) as raised:
        cs.distributed.init("nccl")
    assert raised.value.backend == "nccl"
    can, why = initialisation.available()["nccl"]
    assert not can
    assert "this process uses none" in why


def test_without_nccl4py_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(nccl_library, "chosen", lambda: ("cuda", "planted"))
    monkeypatch.setattr(nccl_library, "library", nccl_library.library.__wrapped__)
    monkeypatch.setitem(sys.modules, "nccl.bindings.nccl", None)
    with pytest.raises(cs.distributed.BackendUnavailable, match=r"cudasync\[nccl\]"):
        cs.distributed.init("nccl")


def test_arrays_of_the_cpu_are_not_for_it(nccl, monkeypatch):
    monkeypatch.setattr(nccl_library, "library", ReferenceNccl)
    with pytest.raises(ValueError, match="names the CPU"):
        cs.distributed.init("nccl", devices=["cpu"])
    with pytest.raises(ValueError, match="one device"):
        cs.distributed.init("nccl", devices=[])
    with pytest.raises(ValueError, match="names one twice"):
        cs.distributed.init("nccl", devices=[0, 0])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_any_program_gives_what_numpy_gives(nccl, size):
    if size > cs.device_count():
        pytest.skip(f"needs {size} devices")
    comm, reference = nccl(size=size)
    assert comm.ranks == tuple(range(size))

    check_programs(comm, size)
    assert "abort" not in reference.told


def check_programs(comm, size):
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(programs())
    def check(program):
        # On a GPU a send waits for its recv, so each pair is in one group here.
        rows = place(program, comm)
        length, steps = program
        for step in steps:
            with comm.group() if step[0] == "send" else nullcontext():
                run((length, [step]), comm, rows)
        raise_unless_same(results(rows), expected(program, size))

    check()


def test_nccl_itself_gives_what_numpy_gives(monkeypatch):
    for launcher in initialisation._LAUNCHERS:
        monkeypatch.delenv(launcher, raising=False)
    try:
        nccl_library.library()
    except cs.distributed.BackendUnavailable as error:
        pytest.skip(f"no such device: {error}")
    with cs.distributed.init("nccl", timeout=PATIENCE_S) as comm:
        check_programs(comm, cs.device_count())


@pytest.mark.lazy
def test_a_device_that_the_op_does_not_wait_for_is_found(nccl, monkeypatch):
    if cs.device_count() < 2:
        pytest.skip("needs 2 devices")

    @contextmanager
    def beside(self, stream):
        yield [stream.handle, *(each.handle for each in self._streams)]

    monkeypatch.setattr(StreamsBeside, "beside", beside)
    comm, _ = nccl(size=2)
    rows = comm.each(lambda rank, device: cs.array(np.ones(4, np.float32), device=device))
    cs.waitall()
    comm.all_reduce(rows)
    assert rows[1].numpy().tolist() == [1] * 4
    monkeypatch.undo()


def test_every_call_is_made_and_its_arrays_are_ordered(nccl):
    comm, reference = nccl()
    x = cs.array(np.arange(8, dtype=np.float32))
    y = cs.zeros(8)
    x += 1
    comm.all_gather(x, y)
    y *= 2
    comm.gather(y, x)
    comm.scatter(x, y)
    y += 1
    comm.reduce_scatter(y, x, op="mean")
    comm.reduce(x, op="max")
    comm.broadcast(x)
    comm.all_to_all(x)
    gaps = cs.zeros(16)
    comm.all_reduce(x, gaps[::2])
    comm.barrier()
    np.testing.assert_array_equal(gaps.numpy()[::2], np.arange(1, 9) * 2 + 1)
    assert gaps.numpy()[1::2].tolist() == [0] * 8
    calls = ["all_gather", "gather", "scatter", "reduce_scatter", "reduce", "broadcast"]
    assert reference.told == ["init", *calls, "allto_all", "all_reduce", "all_reduce"]


def test_a_group_is_one_of_nccl_s_and_nothing_of_it_is_launched_on_an_exception(nccl):
    comm, reference = nccl()
    x, y = cs.array([1.0, 2.0]), cs.zeros(2)

    def fails():
        with comm.group():
            comm.all_reduce(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with comm.group() as group:
        comm.recv(y, 0)
        comm.all_reduce(x)
        comm.send(x, 0)
    assert len(group.works) == 3
    assert y.numpy().tolist() == [1, 2]
    called = ["group_start", "all_reduce", "group_end", "send and recv"]
    assert reference.told == ["init", *called]


def test_a_call_that_fails_in_a_group_leaves_the_thread_no_open_group(nccl, monkeypatch):
    comm, reference = nccl()

    def fails(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(reference, "reduce", fails)
    with comm.group() as group:
        comm.all_reduce(cs.zeros(4))
        comm.reduce(cs.zeros(4))
    assert "planted" in str(group.works[1].exception())
    assert reference.told == ["init", "group_start", "all_reduce", "abort", "group_end"]
    assert comm.is_broken
    cs.engine().clear_errors()


def test_a_state_in_progress_is_waited_for(nccl):
    reference = ReferenceNccl()
    reference.states = [7, 7, 0]
    comm, _ = nccl(reference=reference)
    reference.states = [7, 0]
    comm.all_reduce(cs.zeros(4)).wait()
    assert not reference.states


def test_an_error_of_nccl_s_breaks_the_communicator(nccl):
    comm, reference = nccl()
    reference.states = [6]
    error = comm.all_reduce(cs.zeros(4)).exception()
    assert isinstance(error.cause, cs.distributed.RankFailed)
    assert "state 6; no more is known" in str(error)
    assert reference.told.count("abort") == 1
    with pytest.raises(cs.distributed.CommunicatorBroken, match="state 6"):
        comm.all_reduce(cs.zeros(4))
    cs.engine().clear_errors()


def test_a_collective_past_its_deadline_is_aborted(nccl):
    comm, reference = nccl(timeout=0.2, reference=held())
    work = comm.all_reduce(cs.zeros(4))
    with pytest.raises(cs.distributed.CollectiveTimeout, match="all_reduce sum"):
        work.wait(PATIENCE_S)
    assert isinstance(work.exception(), cs.distributed.CollectiveTimeout)
    assert reference.told.count("abort") == 1
    assert comm.is_broken


def test_a_closed_one_has_ended_in_good_order(nccl):
    comm, reference = nccl()
    comm.all_reduce(cs.zeros(4))
    comm.close()
    comm.close()
    assert reference.told == ["init", "all_reduce", "finalize", "destroy"]
    with pytest.raises(cs.ClosedError):
        comm.all_reduce(cs.zeros(4))


def test_the_reference_has_nccl4py_s_arguments():
    bindings = pytest.importorskip("nccl.bindings.nccl", reason="needs nccl4py")
    for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
                 "scatter", "allto_all", "send", "recv"):  # fmt: skip
        signature = re.search(r"\((.*)\)", getattr(bindings, name).__doc__)[1]
        theirs = [each.split()[-1] for each in signature.split(",")]
        code = getattr(ReferenceNccl, name).__code__
        ours = code.co_varnames[1 : code.co_argcount]
        assert len(theirs) == len(ours), name
        assert theirs[-2:] == ["comm", "stream"] == list(ours[-2:])
    for name, number in (("Float32", 7), ("Uint8", 1), ("Int64", 4), ("Float16", 6)):
        assert int(getattr(bindings.DataType, name)) == number
    for name, ours in (("Sum", "sum"), ("Prod", "prod"), ("Max", "max"), ("Min", "min"),
                       ("Avg", "mean")):  # fmt: skip
        assert int(getattr(bindings.RedOp, name)) == nccl_library.OPS[ours]
    assert int(bindings.Result.InProgress) == 7
    assert int(bindings.Result.RemoteError) == 6
