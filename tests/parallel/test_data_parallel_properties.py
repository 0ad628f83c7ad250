"""For any parameters, orders and buckets, the reduction is the sum of one device."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from helpers.distributed.communicators import communicator
from helpers.distributed.data_parallel_programs import (
    data_parallel,
    expected,
    program,
    push,
    raise_unless_same,
)
from hypothesis import given, note
from hypothesis import strategies as st

import cudasync as cs
from cudasync.parallel import data_parallel as module
from cudasync.parallel.buckets import Bucket

SIZES = st.sampled_from([2, 3, 1])


def play(drawn, size, *, on_cpu=False, recorded=False, mode="async"):
    comm = communicator(size, on_cpu=on_cpu)
    with cs.Engine(mode):
        dp = data_parallel(drawn, comm)
        if recorded:
            with cs.graph() as graph:
                found = push(drawn, comm, dp)
            graph.instantiate().launch().wait()
        else:
            found = push(drawn, comm, dp)
        raise_unless_same(found, expected(drawn, size))


@given(st.randoms(use_true_random=False), SIZES, st.booleans())
def test_any_gradients_in_any_order_and_buckets_give_the_sum_of_one_device(random, size, on_cpu):
    drawn = program(random, size)
    note(drawn)
    play(drawn, size, on_cpu=on_cpu)


def test_the_serial_engine_gives_it_too():
    for seed in range(3):
        play(program(Random(seed), 2), 2, mode="serial")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_recorded_steps_give_it_too(size):
    for seed in range(3):
        play(program(Random(seed), size), size, recorded=True)


def _a_bucket_goes_before_its_last_gradient(planted):
    begin = module.DataParallel._begin

    def early(self):
        begin(self)
        self._missing = [max(each - 1, 0) for each in self._missing]

    planted.setattr(module.DataParallel, "_begin", early)


def _a_sum_is_kept_for_the_next_step(planted):
    class Keeping(set):
        def __isub__(self, other):
            return self

    reset = module.DataParallel.__init__

    def kept(self, *given, **options):
        reset(self, *given, **options)
        self._held = Keeping()

    planted.setattr(module.DataParallel, "__init__", kept)


def _a_bucket_is_not_reduced(planted):
    reduce = Bucket.all_reduce

    def forgets(bucket):
        return reduce(bucket) if bucket.index else bucket.comm.broadcast(bucket.arrays)

    planted.setattr(Bucket, "all_reduce", forgets)


PLANTED = [
    _a_bucket_goes_before_its_last_gradient,
    _a_sum_is_kept_for_the_next_step,
    _a_bucket_is_not_reduced,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda each: each.__name__.strip("_"))
def test_a_planted_bug_is_found(plant, monkeypatch):
    plant(monkeypatch)
    found = 0
    for seed in range(10):
        try:
            play(program(Random(seed), 2), 2, on_cpu=True)
        except (AssertionError, cs.CudasyncError):
            found += 1
        with contextlib.suppress(cs.CudasyncError):
            cs.waitall()
    assert found
