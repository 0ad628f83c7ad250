"""An impossible argument of a verb is refused by the line that gives it, before anything runs."""

from __future__ import annotations

import pytest

import cudasync as cs

NONE_BELOW = {
    "take": (lambda p, n: p.take(n), 0),
    "skip": (lambda p, n: p.skip(n), 0),
    "repeat": (lambda p, n: p.repeat(n), 0),
    "batch": (lambda p, n: p.batch(n), 1),
    "buckets": (lambda p, n: p.bucket_by_length(len, [2], n), 1),
    "prefetch": (lambda p, n: p.prefetch(n), 1),
    "workers": (lambda p, n: p.map(len, workers=n), 1),
    "seed": (lambda p, n: p.shuffle(n), 0),
    "buffer": (lambda p, n: p.shuffle(1, buffer=n), 1),
    "rank": (lambda p, n: p.shard(n, 3), 0),
    "ranks": (lambda p, n: p.shard(0, n), 1),
    "block": (lambda p, n: cs.data.interleave(p, block=n), 1),
    "position": (lambda p, n: p.restore({"epoch": 0, "delivered": n}), 0),
}
FUNCTIONS = {
    "map": lambda p, fn: p.map(fn),
    "filter": lambda p, fn: p.filter(fn),
    "bucket_by_length": lambda p, fn: p.bucket_by_length(fn, [2], 1),
}


@pytest.mark.parametrize("verb", NONE_BELOW)
def test_numbers_are_whole_and_large_enough(verb):
    call, least = NONE_BELOW[verb]
    pipeline = cs.data.source([[1], [2], [3]])
    call(pipeline, least)
    with pytest.raises(ValueError, match=f"is {least - 1}: at least {least}"):
        call(pipeline, least - 1)
    for wrong in (1.5, True, []):
        with pytest.raises(TypeError, match="must be an integer"):
            call(pipeline, wrong)


@pytest.mark.parametrize("verb", FUNCTIONS)
def test_what_is_called_can_be_called(verb):
    with pytest.raises(TypeError, match=f"{verb} takes a function"):
        FUNCTIONS[verb](cs.data.source([1]), 3)


@pytest.mark.parametrize("verb", ["concat", "zip", "interleave"])
def test_several_pipelines_are_at_least_one(verb):
    with pytest.raises(ValueError, match="at least one"):
        getattr(cs.data, verb)()


def test_a_shard_a_place_and_a_state_are_what_they_are_said_to_be():
    pipeline = cs.data.source([1, 2])
    with pytest.raises(ValueError, match="rank=3 must be from 0"):
        pipeline.shard(3, 3)
    with pytest.raises(TypeError, match="'memory' or a folder"):
        pipeline.cache(3)
    with pytest.raises(TypeError, match=r"the result of state\(\)"):
        pipeline.restore({"epoch": 1})
