"""Random pipelines of whole numbers, and the results of the same verbs in plain Python."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
from helpers.data import sample_functions as functions
from hypothesis import strategies as st

from cudasync import data


class Both:
    """A pipeline and its model, which maps a key (epoch, passes) to the list of items."""

    def __init__(self, pipeline, model, known):
        self.pipeline, self.model, self.known = pipeline, model, known


def source(count, kind, start):
    """Numbers in a list, from a generator, or from one that yields the same array each time."""
    numbers = list(range(start, start + count))
    if kind == "list":
        pipeline = data.source(numbers)
    elif kind == "generator":
        pipeline = data.source(lambda: iter(numbers))
    else:
        pipeline = data.source(lambda: functions.reused(numbers)).map(functions.total)
    return Both(pipeline, lambda key: list(numbers), kind == "list")


def take(both, count):
    return Both(both.pipeline.take(count), lambda key: both.model(key)[:count], both.known)


def skip(both, count):
    return Both(both.pipeline.skip(count), lambda key: both.model(key)[count:], both.known)


def shard(both, rank, size):
    rank %= size
    return Both(
        both.pipeline.shard(rank, size), lambda key: both.model(key)[rank::size], both.known
    )


def filtered(both):
    return Both(
        both.pipeline.filter(functions.is_kept),
        lambda key: [n for n in both.model(key) if functions.is_kept(n)],
        False,
    )


def repeat(both, count):
    return Both(
        both.pipeline.repeat(count),
        lambda key: [n for at in range(count) for n in both.model((*key, at))],
        False,
    )


def shuffle(both, seed, buffer):
    def model(key):
        items = both.model(key)
        rng = np.random.default_rng([seed, *key])
        if both.known:
            return [items[at] for at in rng.permutation(len(items))]
        held, found = items[:buffer], []
        for new in items[buffer:]:
            at = int(rng.integers(len(held)))
            found.append(held[at])
            held[at] = new
        while held:
            at = int(rng.integers(len(held)))
            held[at], held[-1] = held[-1], held[at]
            found.append(held.pop())
        return found

    return Both(both.pipeline.shuffle(seed, buffer), model, both.known)


def mapped(both, how):
    return Both(
        both.pipeline.map(functions.shifted, **how),
        lambda key: [functions.shifted(n) for n in both.model(key)],
        False,
    )


def cached(both):
    return Both(both.pipeline.cache("memory"), lambda key: both.model((0,)), False)


def prefetched(both, depth):
    return Both(both.pipeline.prefetch(depth), both.model, False)


def batched(both, size, drop_last):
    def model(key):
        items = both.model(key)
        parts = [items[at : at + size] for at in range(0, len(items), size)]
        return [sum(part) for part in parts if len(part) == size or not drop_last]

    pipeline = both.pipeline.batch(size, drop_last=drop_last).map(functions.total)
    return Both(pipeline, model, False)


def bucketed(both, size):
    def model(key):
        buckets, found = ([], []), []
        for n in both.model(key):
            bucket = buckets[functions.length(n) >= 3]
            bucket.append(n)
            if len(bucket) == size:
                found.append(sum(bucket))
                bucket.clear()
        return found + [sum(each) for each in buckets if each]

    pipeline = both.pipeline.bucket_by_length(functions.length, [3], size)
    return Both(pipeline.map(functions.total), model, False)


def with_another(both, kind, count, other_kind):
    other = source(count, other_kind, 1000)
    pipelines = both.pipeline, other.pipeline
    if kind == "concat":
        return Both(
            data.concat(*pipelines),
            lambda key: both.model(key) + other.model(key),
            both.known and other.known,
        )
    if kind == "zip":
        return Both(
            data.zip(*pipelines).map(sum),
            lambda key: [a + b for a, b in zip(both.model(key), other.model(key), strict=False)],
            False,
        )

    def model(key):
        left, found, turn = [both.model(key), other.model(key)], [], 0
        while left:
            part, left[turn] = left[turn][:2], left[turn][2:]
            found += part
            if len(part) < 2:
                del left[turn]
            else:
                turn += 1
            turn %= max(1, len(left))
        return found

    return Both(data.interleave(*pipelines, block=2), model, False)


counts = st.integers(0, 12)
sources = st.sampled_from(["list", "generator", "reused memory"])
few = st.integers(1, 4)
ways = st.fixed_dictionaries({"workers": st.sampled_from([1, 2, 3, "auto"])})
STEPS = st.one_of(
    st.builds(lambda n: partial(take, count=n), counts),
    st.builds(lambda n: partial(skip, count=n), counts),
    st.builds(lambda r, s: partial(shard, rank=r, size=s), counts, few),
    st.just(filtered),
    st.builds(lambda n: partial(repeat, count=n), st.integers(0, 3)),
    st.builds(lambda s, b: partial(shuffle, seed=s, buffer=b), st.integers(0, 9), few),
    st.builds(lambda how: partial(mapped, how=how), ways),
    st.just(cached),
    st.builds(lambda n: partial(prefetched, depth=n), few),
    st.builds(lambda n, d: partial(batched, size=n, drop_last=d), few, st.booleans()),
    st.builds(lambda n: partial(bucketed, size=n), few),
    st.builds(
        lambda kind, n, other: partial(with_another, kind=kind, count=n, other_kind=other),
        st.sampled_from(["concat", "zip", "interleave"]), counts, sources,
    ),
)  # fmt: skip


@st.composite
def pipelines(draw, steps=STEPS):
    """A source and up to six verbs. Every call of `make()` makes the same pipeline."""
    begin = draw(st.integers(0, 25)), draw(sources)
    chosen = draw(st.lists(steps, max_size=6))

    def make():
        both = source(*begin, 0)
        for step in chosen:
            both = step(both)
        return both

    return make


# Which of up to three iterators is asked, and for how many items.
turns = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=8)


class Reader:
    """An iterator and its model: each item, the end and the position are compared."""

    def __init__(self, both, epoch):
        self.epoch, self._iterator = epoch, iter(both.pipeline)
        self._expected, self._at = both.model((epoch,)), 0
        self.is_over = False

    def read(self, count):
        rest = self._expected[self._at :]
        assert list(itertools.islice(self._iterator, count)) == rest[:count]
        self._at += min(count, len(rest))
        self.is_over = self.is_over or count > len(rest)
        assert self._iterator.state() == self.position()

    def position(self):
        if self.is_over:
            return {"epoch": self.epoch + 1, "delivered": 0}
        return {"epoch": self.epoch, "delivered": self._at}

    def rest(self):
        return [] if self.is_over else self._expected[self._at :]


def read_in_turns(both, turns):
    """Read by several iterators of one pipeline, in turns; the readers that were begun."""
    readers, epoch = {}, 0
    for which, count in turns:
        if which not in readers:
            readers[which] = Reader(both, epoch)
        readers[which].read(count)
        epoch = max(epoch, readers[which].position()["epoch"])
    under_way = [each for each in readers.values() if not each.is_over]
    if len(under_way) == 1:
        assert both.pipeline.state() == under_way[0].position()
    elif under_way:
        try:
            found = both.pipeline.state()
        except ValueError:
            pass
        else:
            raise AssertionError(f"several iterations are under way, and the state is {found}")
    return list(readers.values())
