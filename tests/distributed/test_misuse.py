"""A wrong collective raises a named error, and moves nothing."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs

init = cs.distributed.init


@pytest.fixture
def comm():
    return init("local", devices=["cpu", "cpu"])


def rows(*lengths, dtype=np.float32):
    return [cs.zeros(n, dtype, device="cpu") for n in lengths]


WHOLE = rows(8)[0]
WRONG = [
    (TypeError, "of rank 1 must be an array", lambda c: c.all_reduce([rows(2)[0], np.zeros(2)])),
    (ValueError, "a list of 2, not 1", lambda c: c.all_reduce(rows(2))),
    (ValueError, "shape", lambda c: c.all_reduce(rows(2, 3))),
    (TypeError, "float64", lambda c: c.all_reduce(rows(2, 2), rows(2, 2, dtype=np.float64))),
    (ValueError, "is on", lambda c: c.all_reduce([rows(2)[0], cs.zeros(2)])),
    (ValueError, "op= must be one of", lambda c: c.all_reduce(rows(2, 2), op="avg")),
    (TypeError, "floats", lambda c: c.all_reduce(rows(2, 2, dtype=np.int32), op="mean")),
    (TypeError, "bool", lambda c: c.all_reduce(rows(2, 2, dtype=bool))),
    (ValueError, "not a rank", lambda c: c.broadcast(rows(2, 2), 2)),
    (ValueError, "cannot be split into 2 equal parts", lambda c: c.all_to_all(rows(3, 3))),
    (ValueError, "shape", lambda c: c.all_gather(rows(2, 2), rows(3, 3))),
    (ValueError, "share memory", lambda c: c.all_reduce([WHOLE[:4], WHOLE[2:6]])),
    (ValueError, "shares memory", lambda c: c.all_reduce([WHOLE[:3], rows(3)[0]],
                                                          [WHOLE[1:4], rows(3)[0]])),
    (ValueError, "shares memory", lambda c: c.all_gather([WHOLE[4:], rows(4)[0]],
                                                          [WHOLE, rows(8)[0]])),
    (ValueError, "receives before rank", lambda c: c.recv(rows(2)[0], 0, rank=1)),
    (ValueError, "choose one with rank=", lambda c: c.send(rows(2)[0], 1)),
    (ValueError, "colors", lambda c: c.split([1])),
    (TypeError, "root is an integer", lambda c: c.broadcast(rows(2, 2), "0")),
    (TypeError, "a priority is an integer", lambda c: c.all_reduce(rows(2, 2), priority="high")),
    (TypeError, "list of devices", lambda c: init("local", devices="cpu")),
    (TypeError, "list of devices", lambda c: init("mpi", devices=2)),
    (TypeError, "number of seconds", lambda c: init("local", timeout="300")),
    (ValueError, "positive number", lambda c: init("mpi", timeout=0)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_call_moves_nothing(comm, number):
    kind, says, call = WRONG[number]
    with cs.Engine() as engine:
        with pytest.raises(kind, match=says):
            call(comm)
        engine.waitall()
        assert engine.statistics().host_ops == 0


def test_an_exception_in_a_group_launches_nothing(comm):
    x = [cs.array([1.0], device="cpu"), cs.array([2.0], device="cpu")]

    def fails():
        with comm.group():
            comm.all_reduce(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert [float(each[0]) for each in x] == [1, 2]


def test_a_group_that_receives_what_is_not_sent_launches_nothing(comm):
    x = [cs.array([1.0], device="cpu"), cs.array([2.0], device="cpu")]

    def receives():
        with comm.group():
            comm.all_reduce(x)
            comm.recv(x[0], 1, rank=0)

    with pytest.raises(ValueError, match="receives before rank"):
        receives()
    assert [float(each[0]) for each in x] == [1, 2]
    comm.all_reduce(x)
    assert float(x[0][0]) == 3


def test_a_closed_communicator_refuses(comm):
    comm.close()
    with pytest.raises(cs.ClosedError, match="init"):
        comm.all_reduce(rows(2, 2))


def test_no_such_communicator():
    with pytest.raises(ValueError, match="backend must be one of"):
        init("smoke signals")
    with pytest.raises(ValueError, match="names none"):
        init(devices=[])


def test_what_a_collective_reads_poisons_what_it_writes(comm):
    x, out = rows(2, 2), rows(2, 2)

    def fail():
        raise RuntimeError("no gradient")

    with cs.Engine() as engine:
        engine.push(fail, writes=[x[0]])
        work = comm.all_reduce(x, out)
        with pytest.raises(cs.OpError, match="no gradient"):
            work.wait(10)
        engine.clear_errors()
        comm.all_reduce(x, out).wait(10)
