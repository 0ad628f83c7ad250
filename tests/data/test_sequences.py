"""The sequence of a pipeline equals that of plain Python, for any workers and processes."""

from __future__ import annotations

import datetime
import itertools
from collections import namedtuple
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudasync import data

Pair = namedtuple("Pair", "image label")


def generated():
    yield from range(10)


@pytest.mark.parametrize(
    "of", [list(range(10)), np.arange(10), range(10), generated, dict.fromkeys(range(10), 0)]
)
def test_sources(of):
    assert list(data.source(of)) == list(range(10))
    assert [list(data.source(of).take(2)), list(data.source(of).skip(8))] == [[0, 1], [8, 9]]


def test_an_iterator_is_one_epoch():
    pipeline = data.source(iter(range(3)))
    assert [list(pipeline), list(pipeline)] == [[0, 1, 2], []]


def test_memory_mapped_arrays_and_files(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0))
    mapped = data.source(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert [each.tolist() for each in mapped.batch(4)] == [[0, 1, 2, 3], [4, 5]]
    (path,) = data.files(str(tmp_path / "*.npy"))
    assert path == str(tmp_path / "x.npy")
    with pytest.raises(ValueError, match="no file matches"):
        data.files(str(tmp_path / "*.jpg"))


def test_what_is_no_source_is_refused():
    with pytest.raises(TypeError, match="not a source"):
        data.source(3)


@pytest.mark.parametrize("of", [list(range(10)), generated])
def test_verbs(of):
    one = data.source(of)
    assert list(data.zip(one, one.skip(3))) == list(zip(range(7), range(3, 10), strict=True))
    assert list(data.concat(one, one.take(2))) == [*range(10), 0, 1]
    assert list(one.filter(lambda n: n % 2)) == [1, 3, 5, 7, 9]
    assert list(one.take(2).repeat(3)) == [0, 1] * 3
    assert list(itertools.islice(one.take(2).repeat(), 5)) == [0, 1, 0, 1, 0]
    assert list(data.interleave(one.take(5), ["a", "b"], block=2)) == [0, 1, "a", "b", 2, 3, 4]
    assert [list(one.shard(rank, 3)) for rank in range(3)] == [
        list(range(r, 10, 3)) for r in range(3)
    ]
    assert list(one.take(0).repeat()) == []


@pytest.mark.parametrize(("of", "buffer"), [(list(range(50)), None), (lambda: iter(range(50)), 8)])
def test_shuffles(of, buffer):
    pipeline = data.source(of).shuffle(3, buffer)
    first, second = list(pipeline), list(pipeline)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert first != list(range(50))
    assert list(data.source(of).shuffle(3, buffer)) == first
    assert list(data.source(of).shuffle(4, buffer)) != first


def test_a_shuffle_without_length_wants_a_buffer():
    with pytest.raises(ValueError, match="buffer=n"):
        data.source(generated).shuffle(1)


def test_trees_are_batched_leaf_by_leaf():
    samples = [Pair({"a": np.full(2, n), "b": n}, (n, np.float32(n))) for n in range(5)]
    first, last = data.source(samples).batch(3)
    assert isinstance(first, Pair)
    assert first.image["a"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert last.label[1].tolist() == [3, 4]
    assert last.label[1].dtype == np.float32
    assert len(list(data.source(samples).batch(3, drop_last=True))) == 1


def test_ragged_samples_are_padded_or_refused():
    samples = [np.arange(n) for n in (1, 3)]
    (batch,) = data.source(samples).batch(2, pad=-1)
    assert batch.tolist() == [[0, -1, -1], [0, 1, 2]]
    with pytest.raises(data.DataError, match="pad=value"):
        list(data.source(samples).batch(2))


def test_buckets_by_length():
    samples = [np.full(n, n) for n in (1, 5, 2, 6, 1)]
    batches = data.source(samples).bucket_by_length(len, [4], 2)
    assert [each.tolist() for each in batches] == [
        [[1, 0], [2, 2]],
        [[5] * 5 + [0], [6] * 6],
        [[1]],
    ]


@given(
    length=st.integers(0, 60), workers=st.integers(1, 3), depth=st.integers(0, 3),
    size=st.integers(1, 7), seed=st.integers(0, 9), cut=st.integers(0, 9), known=st.booleans(),
)  # fmt: skip
def test_workers_and_prefetch_change_nothing_and_the_rest_is_the_same_after_restore(
    length, workers, depth, size, seed, cut, known
):
    def made(workers, depth):
        of = list(range(length)) if known else lambda: iter(range(length))
        pipeline = data.source(of).shuffle(seed, None if known else 5)
        pipeline = pipeline.map(lambda n: n * n, workers=workers).batch(size)
        return pipeline.prefetch(depth) if depth else pipeline

    order = [each.tolist() for each in made(1, 0)]
    assert sorted(itertools.chain(*order)) == [n * n for n in range(length)]
    pipeline = made(workers, depth)
    begun = [each.tolist() for each in itertools.islice(pipeline, cut)]
    assert begun == order[:cut]
    state = pipeline.state()
    pipeline.close()
    if cut <= len(order):
        again = made(workers, depth)
        again.restore(state)
        assert [each.tolist() for each in again] == order[cut:]


def test_unordered_maps_give_all_and_have_no_state():
    pipeline = data.source(range(50)).map(lambda n: n + 1, workers=2, ordered=False)
    assert sorted(pipeline) == list(range(1, 51))
    with pytest.raises(ValueError, match="needs an order"):
        pipeline.state()


def test_each_stage_counts_its_samples():
    pipeline = data.source(range(20_000)).map(abs, workers=2).batch(100).prefetch(2)
    for _ in pipeline:
        pass
    stats = pipeline.stats()
    assert [each.items for each in stats.stages][1:3] == [20_000, 20_000]
    assert stats.delivered == 200
    assert stats.bottleneck
    assert "bottleneck" in str(stats)


def reused(count=6):
    """A reader that decodes into the same memory again and again, of each kind."""
    array, rows, raw = np.zeros(2), [0, [0]], bytearray(1)
    sample = {"array": array, "pair": (array, rows), "raw": raw, "named": Pair(array, rows)}
    for n in range(count):
        array[:], rows[0], rows[1][0], raw[0], sample["n"] = n, n, n, n, n
        yield sample


def number(sample):
    """The sample's number, in whichever leaf it stands."""
    array, rows = sample["pair"]
    named = sample["named"]
    (n,) = {
        *sample["array"], *array, rows[0], rows[1][0], sample["raw"][0], sample["n"],
        *named.image, named.label[0],
    }  # fmt: skip
    return n


@pytest.mark.parametrize(
    "verb",
    [
        lambda p: p,
        lambda p: p.prefetch(3),
        lambda p: p.map(lambda sample: sample, workers=2),
        lambda p: p.shuffle(1, buffer=4),
        lambda p: data.interleave(p, p),
        lambda p: data.concat(p.take(3), p.skip(3)).prefetch(2),
    ],
)
def test_a_generator_may_use_its_memory_again(verb):
    found = [int(number(each)) for each in list(verb(data.source(reused)))]
    assert sorted(set(found)) == list(range(6))
    assert len(found) in (6, 12)
    batches = list(verb(data.source(reused).map(lambda sample: sample["array"])).batch(2))
    assert sorted({int(each) for batch in batches for each in batch[:, 0]}) == list(range(6))


def fails_at_three(n):
    if n == 3:
        raise KeyError(n)
    return n


@pytest.mark.parametrize(
    "pipeline",
    [
        data.source(lambda: map(fails_at_three, range(9))),
        data.source(range(9)).filter(lambda n: fails_at_three(n) is not None),
        data.source(range(9)).map(fails_at_three).filter(lambda n: True),
        data.source(range(9)).map(fails_at_three).bucket_by_length(lambda n: n, [0], 1),
        data.source(range(9)).map(fails_at_three).cache("memory"),
        data.source(range(9)).map(fails_at_three).filter(lambda n: True).repeat(2),
    ],
)
def test_a_failure_among_skipped_items_is_no_end_of_the_data(pipeline):
    for wrong in (pipeline.skip(5), pipeline.shard(1, 5), pipeline.skip(5).prefetch(2)):
        with pytest.raises(data.DataError, match="KeyError: 3"):
            list(wrong)
    pipeline.restore({"epoch": 0, "delivered": 5})
    with pytest.raises(data.DataError, match="KeyError: 3"):
        iter(pipeline)


@pytest.mark.parametrize(
    "pipeline",
    [
        data.source([]),
        data.source(range(3)).skip(3),
        data.source(lambda: iter(())),
        data.source([]).map(abs, workers=2).shuffle(1, buffer=2),
        data.source(range(3)).take(0).cache("memory"),
    ],
)
def test_an_endless_repetition_of_nothing_ends(pipeline):
    assert list(pipeline.repeat().batch(2)) == []
    assert list(pipeline.repeat().map(abs).prefetch(2)) == []
    beyond = pipeline.repeat()
    beyond.restore({"epoch": 0, "delivered": 1})
    with pytest.raises(ValueError, match="has 0"):
        iter(beyond)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_an_iterator_that_is_repeated_ends(size):
    batches = data.source(iter(range(3))).repeat().batch(size)
    assert [n for each in batches for n in each.tolist()] == [0, 1, 2]
    with pytest.raises(data.DataError, match="gives its items once"):
        list(data.source(itertools.count()).take(2).repeat(2))


def test_a_repetition_in_which_some_passes_give_nothing_goes_on():
    """The passes shuffle anew, so a pass may be empty, and the next one not."""
    pipeline = data.source(range(10)).shuffle(1).take(1).filter(lambda n: n == 4).repeat()
    assert list(itertools.islice(pipeline, 5)) == [4] * 5
    with pytest.raises(data.DataError, match=r"repeat, .*the last 100 passes drew items and gave"):
        list(data.source([1, 2]).filter(lambda n: False).repeat().batch(2))


class Box:
    """An object with a length, into which NumPy would look."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return [Path("a"), None][index]


class Unreadable(Box):
    def __getitem__(self, index):
        raise KeyError(index)


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize(
    "leaves",
    [
        [Path("a"), Path("b")], [None, None], [None, 3], [1, None, 2.5], [Box(), None],
        [Box(), Box()], [Unreadable(), 1], [datetime.date(2026, 11, 28), None], [{1, 2}, set()],
        [2**70, 1], [Fraction(1, 3), 2], [b"ab\0", b"c"], [b"\0", b"\0\0"], ["a\0", "b"],
        [Box, Path], [len, None], [np.float32(1), None],
    ],
)  # fmt: skip
def test_a_batch_keeps_what_is_neither_number_nor_text(leaves, depth):
    pipeline = data.source([{"leaf": each, "n": at} for at, each in enumerate(leaves)])
    pipeline = pipeline.batch(len(leaves), pad=0)
    (batch,) = pipeline.prefetch(depth) if depth else pipeline
    assert batch["leaf"].shape == (len(leaves),)
    for kept, put in zip(batch["leaf"], leaves, strict=True):
        assert kept is put or (type(kept), kept) == (type(put), put)
    assert batch["n"].tolist() == list(range(len(leaves)))


def test_lists_of_objects_are_rows_of_them():
    (batch,) = data.source([[Path("a"), None], [1, "b"]]).batch(2)
    assert batch.tolist() == [[Path("a"), None], [1, "b"]]
    (padded,) = data.source([["a\0"], ["b", "c"]]).batch(2, pad="")
    assert padded.tolist() == [["a\0", ""], ["b", "c"]]


@pytest.mark.parametrize("leaves", [[1, "a"], ["a", 1.5], [b"a", "a"], [True, b"a"]])
def test_text_among_numbers_is_refused(leaves):
    with pytest.raises(data.DataError, match="text is no number"):
        list(data.source(leaves).batch(2))
