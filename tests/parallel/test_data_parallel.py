"""DataParallel: its launches and their order, and its refusals."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.array.host.memory import view_of
from cudasync.parallel import DataParallel, as_float16
from cudasync.testing import HostLatch


@pytest.fixture
def comm():
    count = cs.device_count()
    return cs.distributed.init("local", devices=[0, 1 % count, "cpu"])


def full(comm, value, shape=(4,), dtype=np.float32):
    """One array for each rank, filled with value + rank."""
    return comm.each(lambda rank, device: xp.full(shape, value + rank, dtype=dtype, device=device))


def three(comm, **options):
    """Three parameters of 16 bytes, each in its own bucket."""
    weights = {name: full(comm, 0) for name in ("first", "second", "third")}
    return DataParallel(weights, comm, **{"bucket_bytes": 16, **options})


def numbers(arrays):
    return [each.numpy().tolist() for each in arrays]


def test_buckets_are_in_reverse_order_of_use_and_as_long_as_said(comm):
    weights = [full(comm, 0, (length,)) for length in (100, 1, 2, 3, 4)]
    weights.append(full(comm, 0, (2,), np.int32))
    dp = DataParallel(weights, comm, op="sum", bucket_bytes=24, first_bucket_bytes=16)
    assert [each.names for each in dp.buckets] == [(5,), (4,), (3, 2, 1), (0,)]
    assert [each.size for each in dp.buckets] == [2, 4, 6, 100]
    assert len(DataParallel(weights[:5], comm).buckets) == 1


def test_each_bucket_goes_with_its_last_gradient_and_none_before_an_earlier_one(comm):
    dp = three(comm)
    dp.ready("second", full(comm, 1))
    assert len(dp.works) == 0
    for rank in (1, 0, 2):
        assert len(dp.works) == 0
        dp.ready("third", full(comm, 1)[rank], rank=rank)
    assert len(dp.works) == 2
    dp.ready("first", full(comm, 1))
    assert len(dp.works) == 3
    dp.finish()
    assert len(dp.works) == 3


def test_a_bucket_is_reduced_while_backward_goes_on(comm):
    """The op that computes the last gradient has not ended, and cannot end before the reduction."""
    latch = HostLatch()
    with cs.Engine(workers=3) as engine:
        comm = cs.distributed.init("local", devices=["cpu", "cpu"])
        dp = three(comm)
        dp.ready("third", full(comm, 1))
        late = full(comm, 5)

        def write():
            latch.wait()
            view_of(late[0])[...] = 7

        engine.push(write, writes=[late[0]])
        dp.ready("second", full(comm, 3))
        dp.ready("first", late)
        for work in dp.works[:2]:
            work.wait(60)
        assert not dp.works[2].done()
        latch.release()
        found = dp.finish()
        assert numbers(found["third"]) == [[1.5] * 4] * 2
        assert numbers(found["first"]) == [[6.5] * 4] * 2


def test_gradients_may_be_written_where_they_go(comm):
    dp = three(comm, op="sum")
    for name in ("third", "second", "first"):
        for row in dp.gradient(name):
            xp.add(xp.ones_like(row), 1.0, out=row)
        dp.ready(name)
    assert numbers(dp.finish()["first"]) == [[6.0] * 4] * 3


def test_without_sync_gradients_are_added_up_here_and_sent_with_the_next_step(comm):
    dp = three(comm, op="sum")
    with dp.no_sync():
        for _ in range(2):
            for name in ("third", "first"):
                dp.ready(name, full(comm, 1))
        assert numbers(dp.finish()["third"]) == [[2.0] * 4, [4.0] * 4, [6.0] * 4]
    assert dp.works == ()
    for name in ("third", "second"):
        dp.ready(name, full(comm, 10))
    dp.unused("first")
    found = dp.finish()
    assert numbers(found["third"]) == [[45.0] * 4] * 3
    assert numbers(found["second"]) == [[33.0] * 4] * 3
    assert numbers(found["first"]) == [[12.0] * 4] * 3
    for name in ("third", "second", "first"):
        dp.ready(name, full(comm, 0))
    assert numbers(dp.finish()["first"]) == [[3.0] * 4] * 3


def test_what_is_not_ready_is_named_and_nothing_is_lost(comm):
    dp = three(comm)
    dp.ready("third", full(comm, 1))
    dp.ready("first", full(comm, 1)[1], rank=1)
    with pytest.raises(ValueError, match="'second', 'first'"):
        dp.finish()
    dp.unused("second")
    for rank in (0, 2):
        dp.unused("first", rank=rank)
    found = dp.finish()
    assert numbers(found["third"]) == [[2.0] * 4] * 3
    assert numbers(found["second"]) == [[0.0] * 4] * 3
    np.testing.assert_allclose(found["first"][2].numpy(), 2 / 3, rtol=1e-6)


def test_what_is_not_ready_may_count_as_zeros(comm):
    dp = three(comm, unused="zero", op="sum")
    for _ in range(2):
        dp.ready("second", full(comm, 1))
        found = dp.finish()
        assert numbers(found["second"]) == [[6.0] * 4] * 3
        assert numbers(found["third"]) == [[0.0] * 4] * 3


def test_reset_forgets_a_step(comm):
    dp = three(comm, unused="zero", op="sum")
    with dp.no_sync():
        dp.ready("first", full(comm, 1))
    dp.ready("third", full(comm, 1))
    dp.reset()
    dp.ready("third", full(comm, 2))
    found = dp.finish()
    assert numbers(found["third"])[0] == [9.0] * 4
    assert numbers(found["first"])[0] == [0.0] * 4


def test_the_weights_of_rank_0_are_sent_to_all_unless_said_otherwise(comm):
    weights = full(comm, 1)
    DataParallel([weights], comm, broadcast=False)
    assert numbers(weights)[2] == [3.0] * 4
    DataParallel([weights], comm)
    assert numbers(weights) == [[1.0] * 4] * 3


def test_one_rank_gives_and_gets_arrays_alone():
    comm = cs.distributed.init("local", devices=["cpu"])
    weight = xp.zeros((2, 2), device="cpu")
    dp = DataParallel({"w": weight}, comm)
    dp.ready("w", xp.ones((2, 2), device="cpu"))
    assert dp.finish()["w"].numpy().tolist() == [[1, 1], [1, 1]]
    assert dp.gradient("w").shape == (2, 2)


def test_a_hook_takes_the_place_of_the_reduction(comm):
    seen = []

    def doubled(bucket):
        seen.append(bucket.index)
        for row in bucket.arrays:
            xp.multiply(row, 2, out=row)
        return bucket.all_reduce()

    dp = three(comm, hook=doubled, op="sum")
    for name in ("first", "third", "second"):
        dp.ready(name, full(comm, 1))
    assert seen == [0, 1, 2]
    assert numbers(dp.finish()["second"]) == [[12.0] * 4] * 3


def steps_of(dp, comm, tries):
    """Two steps, in which each call that raises is followed by the next; their reductions."""
    found = []
    for step in range(2):
        for name in ("third", "second", "first"):
            with suppress(MemoryError):
                dp.ready(name, full(comm, 1 + step))
        while True:
            try:
                found.append({name: numbers(each) for name, each in dp.finish().items()})
                break
            except MemoryError:
                assert len(tries) <= 10, "finish does not come to an end"
    return found


@pytest.mark.parametrize("failing", range(2**6))
def test_a_launch_that_raises_is_repeated_and_no_gradient_stays_unreduced(comm, failing):
    """The bits of `failing` are the calls of the hook that raise."""
    tries = []

    def hook(bucket):
        tries.append(bucket.index)
        if failing >> len(tries) - 1 & 1:
            raise MemoryError
        return bucket.all_reduce()

    found = steps_of(three(comm, hook=hook, op="sum"), comm, tries)
    assert found == steps_of(three(comm, op="sum"), comm, [])
    assert len(tries) == 6 + (failing & (1 << len(tries)) - 1).bit_count()


def test_a_launch_that_is_not_repeated_is_found(comm, monkeypatch):
    plain = DataParallel._launch

    def once(self):
        with suppress(MemoryError):
            plain(self)

    monkeypatch.setattr(DataParallel, "_launch", once)
    with pytest.raises(AssertionError):
        test_a_launch_that_raises_is_repeated_and_no_gradient_stays_unreduced(comm, 0b111100)


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("length", [1, 7, 3000])
def test_float16_on_the_way_rounds_twice_and_gives_all_ranks_the_same_bits(comm, op, length):
    random = np.random.default_rng(length)
    host = [random.standard_normal(length).astype(np.float32) for _ in comm.ranks]
    weights = [full(comm, 0, (length,))]
    dp = DataParallel(weights, comm, op=op, hook=as_float16)
    dp.ready(0, comm.each(lambda rank, device: xp.asarray(host[rank], device=device)))
    found = [each.numpy() for each in dp.finish()[0]]
    wanted = np.sum(host, axis=0) / (3 if op == "mean" else 1)
    largest = np.sum(np.abs(host), axis=0) / (3 if op == "mean" else 1)
    assert (np.abs(found[0] - wanted) <= 2.0**-10 * largest + 1e-7).all()
    assert length == 1 or (found[0] != wanted).any()
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def test_a_failed_gradient_poisons_its_bucket_alone(comm):
    dp = three(comm)

    def fail():
        raise ArithmeticError("planted")

    third = full(comm, 1)
    cs.engine().push(fail, writes=[third[0]])
    dp.ready("third", third)
    for name in ("second", "first"):
        dp.ready(name, full(comm, 1))
    found = dp.finish()
    with pytest.raises(cs.OpError, match="planted"):
        found["third"][2].wait()
    assert numbers(found["first"]) == [[2.0] * 4] * 3
    cs.engine().clear_errors()
    # Overwritten gradients are usable again.
    for name in ("third", "second", "first"):
        dp.ready(name, full(comm, 1))
    assert numbers(dp.finish()["third"]) == [[2.0] * 4] * 3


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        (lambda dp, g: dp.ready("fourth", g), KeyError, "'first', 'second', 'third'"),
        (lambda dp, g: dp.ready("first", g[:2]), ValueError, "each rank"),
        (lambda dp, g: dp.ready("first", [each[:2] for each in g]), ValueError, "shape"),
        (lambda dp, g: dp.ready("first", g[::-1]), ValueError, "to_device"),
        (lambda dp, g: dp.ready("first", g[0], rank=3), ValueError, "not a rank"),
        (lambda dp, g: dp.ready("first", [xp.astype(x, np.int32) for x in g]), TypeError, "int32"),
        (lambda dp, g: (dp.ready("first", g), dp.ready("first", g)), ValueError, "finish"),
        (lambda dp, g: (dp.ready("first", g), dp.no_sync().__enter__()), ValueError, "begun"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_told_what_to_do_and_changes_nothing(comm, wrong, kind, says):
    dp = three(comm)
    given = full(comm, 1)
    with pytest.raises(kind, match=says):
        wrong(dp, given)
    dp.reset()
    for name in ("third", "second", "first"):
        dp.ready(name, given)
    assert numbers(dp.finish()["first"]) == [[2.0] * 4] * 3


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"op": "max"}, ValueError),
        ({"unused": "maybe"}, ValueError),
        ({"bucket_bytes": 0}, ValueError),
        ({"first_bucket_bytes": -1}, ValueError),
        ({"bucket_bytes": "25"}, TypeError),
        ({"hook": 3}, TypeError),
    ],
)
def test_a_wrong_option_is_refused(comm, options, kind):
    with pytest.raises(kind):
        three(comm, **options)


def test_parameters_that_do_not_fit_are_refused(comm):
    with pytest.raises(TypeError, match=r"distributed\.init"):
        DataParallel({"w": cs.zeros(2, device="cpu")}, None)
    with pytest.raises(ValueError, match="no parameters"):
        DataParallel({}, comm)
    with pytest.raises(ValueError, match="each rank"):
        DataParallel([full(comm, 0)[:2]], comm)
    with pytest.raises(TypeError, match="mean takes floats"):
        DataParallel([full(comm, 0, dtype=np.int32)], comm)
    with pytest.raises(TypeError, match="float16 compresses floats"):
        DataParallel([full(comm, 0, dtype=np.int32)], comm, op="sum", hook=as_float16).ready(
            0, full(comm, 0, dtype=np.int32)
        )
