"""A store of one process, besides sums: rows, refusals, failures, capabilities."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.testing import HostLatch


@pytest.fixture(params=["local", "device", "nccl"])
def store(request, nccl):
    made = cs.kvstore.create(request.param)
    made.init("w", cs.array(np.arange(12, dtype=np.float32).reshape(4, 3)))
    return made


def test_a_call_returns_while_what_it_waits_for_has_not_run(store):
    out, given = cs.empty((4, 3)), xp.ones((4, 3), device="cpu")
    with HostLatch() as latch:
        cs.engine().push(latch.wait, writes=given, reads=given)
        work = store.pushpull("w", given, out)
        assert not work.done()
        latch.release()
    work.wait()
    assert (out.numpy() == 1).all()


def test_a_failed_value_poisons_what_is_pulled_and_the_next_push_heals(store):
    def fail():
        raise RuntimeError("no gradient")

    given, out = xp.ones((4, 3), device="cpu"), cs.empty((4, 3))
    cs.engine().push(fail, writes=given)
    with pytest.raises(cs.OpError, match="no gradient"):
        store.pushpull("w", given, out).wait()
    store.pushpull("w", cs.zeros((4, 3)), out)
    assert (out.numpy() == 0).all()


def test_rows_are_pulled_in_the_order_asked_for(store):
    out = cs.empty((3, 3))
    store.row_sparse_pull("w", out, [3, 0, 3])
    assert out.numpy()[:, 0].tolist() == [9, 0, 9]
    with pytest.raises(IndexError, match="rows 0 to 3"):
        store.row_sparse_pull("w", out, [0, 1, 4])


def test_what_does_not_fit_is_refused_and_nothing_is_pushed(store):
    good, short = cs.zeros((4, 3)), cs.zeros((3,))
    for error, call in (
        (KeyError, lambda: store.push("v", good)),
        (ValueError, lambda: store.push("w", [good, short])),
        (TypeError, lambda: store.push("w", cs.zeros((4, 3), np.int32))),
        (TypeError, lambda: store.push("w", np.zeros((4, 3), np.float32))),
        (TypeError, lambda: store.push(["w", 1], [good, good])),
        (ValueError, lambda: store.push(["w", "w"], [good, good])),
        (ValueError, lambda: store.pushpull("w", good, short)),
        (ValueError, lambda: store.init("w", good)),
        (ValueError, lambda: cs.kvstore.create("dist")),
        (TypeError, lambda: store.set_optimizer("sgd", learning_rate="fast")),
        (TypeError, lambda: store.set_gradient_compression("2bit")),
        (TypeError, lambda: store.set_gradient_compression({"type": "2bit", "bound": 1})),
        (ValueError, lambda: store.row_sparse_pull(["w", "v"], good, [0])),
        (ValueError, lambda: store.is_capable(3)),
    ):
        with pytest.raises(error):
            call()
    out = cs.empty((4, 3))
    store.pull("w", out)
    assert out.numpy()[3, 2] == 11


def test_a_store_says_what_it_is(store):
    assert (store.rank, store.num_workers) == (0, 1)
    assert store.is_capable("optimizer")
    assert not store.is_capable("async")
    out = [cs.empty((2,)), cs.empty((2,))]
    store.broadcast([1, 2], [cs.zeros(2), cs.array(np.ones(2, np.float32))], out)
    store.barrier()
    assert [each.numpy()[0] for each in out] == [0, 1]


def test_a_store_that_was_closed_is_refused_and_names_are_taken_in_any_case(store):
    store.set_optimizer("SGD", learning_rate=0.5)
    store.close()
    store.close()
    for call in (store.push, store.pull, store.init):
        with pytest.raises(cs.ClosedError, match="create another"):
            call("w", cs.zeros((4, 3)))
