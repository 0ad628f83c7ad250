"""Iterations of one pipeline at once share nothing; one that is closed early says so."""

from __future__ import annotations

import itertools
import threading

import pytest
from helpers.concurrency.thread_crew import together
from helpers.data import left_behind
from helpers.data.sample_functions import square

from cudasync import data
from cudasync.errors import ClosedError


def six():
    return data.source(list(range(6)))


@pytest.mark.parametrize(
    "pipeline",
    [six(), six().batch(1).prefetch(2), six().map(abs, workers=2).cache("memory"), six().repeat(1)],
)
def test_a_pass_inside_a_pass_ends_none(pipeline):
    pairs = [(a, b) for a in pipeline for b in pipeline]
    assert pairs == [(a, b) for a in range(6) for b in range(6)]
    assert list(zip(pipeline, pipeline, strict=True)) == [(n, n) for n in range(6)]


def test_iterations_at_once_are_of_one_epoch_and_the_next_is_behind_the_last_that_ended():
    def shuffled():
        return data.source(range(20)).shuffle(3)

    epochs = shuffled()
    first, second, third = (list(epochs) for _ in range(3))
    pipeline = shuffled()
    assert list(zip(pipeline, pipeline, strict=True)) == list(zip(first, first, strict=True))
    assert list(pipeline) == second
    outer = iter(pipeline)
    assert next(outer) == third[0]
    assert list(pipeline) == third
    assert list(outer) == third[1:]
    assert pipeline.state() == {"epoch": 3, "delivered": 0}


def test_threads_over_one_pipeline_get_each_the_whole():
    pipeline = data.source(range(300)).map(square, workers=2).batch(4).prefetch(2)
    found = [[] for _ in range(4)]
    together(*(lambda each=each: each.extend(b.tolist() for b in pipeline) for each in found))
    whole = [[n * n for n in range(at, at + 4)] for at in range(0, 300, 4)]
    assert found == [whole] * 4


def test_the_state_is_that_of_the_only_iteration_under_way():
    pipeline = six()
    for at, _ in enumerate(pipeline):
        if at == 2:
            for _ in pipeline:
                with pytest.raises(ValueError, match=r"2 iterations.*it\.state\(\)"):
                    pipeline.state()
            next(iter(pipeline))
            assert pipeline.state() == {"epoch": 0, "delivered": 3}
            break
    assert pipeline.state() == {"epoch": 0, "delivered": 3}
    pipeline.restore(pipeline.state())
    assert list(pipeline) == [3, 4, 5]
    one, other = iter(pipeline), iter(pipeline)
    assert [next(one), next(one), next(other)] == [0, 1, 0]
    assert [one.state()["delivered"], other.state()["delivered"]] == [2, 1]
    one.close()
    assert pipeline.state() == other.state()
    assert [each.items for each in other.stats().stages] == [1]


@pytest.mark.parametrize("end", ["close", "restore"])
def test_an_iteration_that_is_closed_early_is_no_end_of_the_data(end):
    pipeline = six().map(abs).prefetch(2)
    begun, over = iter(pipeline), iter(pipeline)
    assert next(begun) == 0
    assert list(over) == list(range(6))
    pipeline.close() if end == "close" else pipeline.restore(begun.state())
    with pytest.raises(ClosedError, match=r"closed before its end"):
        next(begun)
    assert list(over) == []
    assert list(pipeline) == list(range(1, 6) if end == "restore" else range(6))


def test_a_loop_whose_pipeline_another_thread_closes_raises():
    begun, closed = threading.Event(), threading.Event()

    def wait(n):
        if n == 3:
            begun.set()
            closed.wait()
        return n

    pipeline = six().map(wait).batch(1)

    def close():
        begun.wait()
        iteration = next(iter(pipeline._works))
        iteration.stop()
        closed.set()
        pipeline.close()

    closer = threading.Thread(target=close)
    closer.start()
    given = []
    with pytest.raises(ClosedError):
        given.extend(int(each[0]) for each in pipeline)
    closer.join()
    assert given == list(range(len(given)))


def test_close_waits_for_iterations_that_were_left():
    before = left_behind.children()
    with data.source(range(1000)).map(square, workers=2, processes=True) as pipeline:
        for _ in pipeline:
            break
    assert left_behind.children() == before


@pytest.mark.parametrize("delivered", [6, 7, 10**30])
@pytest.mark.parametrize(
    "make",
    [
        six,
        lambda: data.source(lambda: iter(range(6))),
        lambda: six().map(abs, workers=2).prefetch(2),
        lambda: six().filter(lambda n: True),
        lambda: six().batch(1),
        lambda: six().batch(1, drop_last=True),
        lambda: data.source(range(13)).shard(0, 2).take(6),
        lambda: data.concat(six().take(2).map(abs), six().skip(2)),
        lambda: data.interleave(six().take(2), six().skip(2), block=3),
        lambda: data.zip(six().map(abs), range(9)),
        lambda: data.source([1, 2]).map(abs).repeat(3),
        lambda: six().cache("memory"),
        lambda: data.source(lambda: iter(range(6))).shuffle(1, buffer=3),
        lambda: six().bucket_by_length(abs, [3], 1),
    ],
)
def test_a_state_beyond_the_epoch_is_refused(make, delivered):
    """After the last item, which is delivered, the rest is empty."""
    pipeline = make()
    pipeline.restore({"epoch": 4, "delivered": delivered})
    if delivered == 6:
        assert list(pipeline) == []
        assert pipeline.state() == {"epoch": 5, "delivered": 0}
        return
    for _ in range(2):
        with pytest.raises(ValueError, match=f"says that {delivered} items of epoch 4 .* has 6:"):
            iter(pipeline)


def test_what_is_no_state_is_refused():
    for wrong in ({"epoch": 0, "delivered": 1, "shard": 2}, [0, 1], None, {"epoch": 0}):
        with pytest.raises(TypeError, match=r"result of state\(\)"):
            six().restore(wrong)
    with pytest.raises(ValueError, match="needs an order"):
        six().map(abs, ordered=False).restore({"epoch": 0, "delivered": 1})


def test_an_iterator_s_items_come_once_and_no_iteration_ends_it():
    def endless():
        yield from itertools.count()

    numbers = endless()
    pipeline = data.source(numbers).map(abs, workers=2)
    assert list(itertools.islice(pipeline, 3)) == [0, 1, 2]
    pipeline.close()
    assert next(numbers) >= 3
    with pytest.raises(data.DataError, match=r"gives its items once.*a function that returns"):
        next(iter(pipeline))
    once = data.source(iter(range(3))).batch(3)
    assert next(iter(once)).tolist() == [0, 1, 2]
    assert list(once) == []


ALL = range(2000)
RESUMED = {
    "map": lambda fn: data.source(ALL).map(fn),
    "repeat": lambda fn: data.source(ALL).map(fn).repeat(2),
    "repeat, later": lambda fn: data.source(range(100)).map(fn).repeat(20),
    "repeat, endless": lambda fn: data.source(range(100)).shuffle(1).map(fn).batch(3).repeat(),
    "concat": lambda fn: data.concat(data.source(ALL[:400]).map(fn), data.source(ALL).map(fn)),
    "interleave": lambda fn: data.interleave(*[data.source(ALL).map(fn)] * 2, block=3),
    "zip": lambda fn: data.zip(*[data.source(ALL).map(fn)] * 2),
    "generator": lambda fn: data.source(lambda: iter(ALL)).map(fn),
    "shard": lambda fn: data.source(ALL).map(fn).shard(1, 3),
    "prefetch": lambda fn: data.source(ALL).map(fn).repeat(2).prefetch(2),
    "nested": lambda fn: data.concat(data.source(ALL[:9]).map(fn).repeat(3), ALL).repeat(2),
}


@pytest.mark.parametrize("verbs", RESUMED)
def test_a_restored_pipeline_computes_no_item_that_it_skips(verbs):
    """Maps compute ahead of the loop, so they are counted before it asks for an item."""
    delivered = 500
    made = [[], []]
    whole, resumed = (RESUMED[verbs](lambda n, to=to: (to.append(n), n)[1]) for to in made)
    first = iter(whole)
    expected = [str(next(first)) for _ in range(delivered + 20)]
    first.close()
    resumed.restore({"epoch": 0, "delivered": delivered})
    assert made[1] == []
    rest = iter(resumed)
    assert made[1] == []
    assert [str(next(rest)) for _ in range(20)] == expected[delivered:]
    rest.close()
