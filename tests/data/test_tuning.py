"""The number of workers follows their benefit, and changes only the time."""

from __future__ import annotations

import pytest

from cudasync import data
from cudasync.data import tuning
from cudasync.data.meters import StageStats
from cudasync.data.tuning import Climber, chosen


def climbed(speed, wanted, most=16, begin=1):
    """The final number of workers; the loop wants `wanted` of `speed(workers)` samples a second."""
    climber = Climber(most, begin)
    for _ in range(100):
        rate = min(speed(climber.workers), wanted)
        has_to_wait = speed(climber.workers) < wanted
        climber.told(int(rate), 1.0, 10 if has_to_wait else 0, 10)
    return climber.workers


@pytest.mark.parametrize(
    ("speed", "wanted", "ends_at"),
    [
        (lambda workers: 1000 * workers, 3500, 4),  # As many as the loop can use,
        (lambda workers: 1000 * min(workers, 2), 9999, 2),  # or as there are processors,
        (lambda workers: 1000, 9999, 1),  # or one, where the GIL is held.
        (lambda workers: 1000 * workers, 500, 1),
        (lambda workers: 100 * workers, 99999, 16),  # A network delivers as much as is asked for.
    ],
)
def test_a_worker_is_added_where_it_is_worth_it(speed, wanted, ends_at):
    assert climbed(speed, wanted) == ends_at


def stage(name, busy_s, cpu_s):
    return StageStats(name, 100, 0, busy_s, cpu_s, 1, None, 0, 0.0)


def test_workers_go_to_the_slowest_stage_until_the_loop_or_the_processors_are_the_limit(
    monkeypatch,
):
    monkeypatch.setattr(tuning, "cores", lambda: 8)
    quick, slow, remote = stage("map", 1, 1), stage("map 2", 5, 5), stage("map 3", 10, 0.1)
    both = {each.stage: each for each in (quick, slow)}
    assert chosen(both, loop_s=0.1, items=100) == {"map": 1, "map 2": 1}
    assert chosen(both, loop_s=0.02, items=100) == {"map": 1, "map 2": 4}
    assert chosen(both, loop_s=0.0, items=100) == {"map": 2, "map 2": 6}
    # A stage that waits for a remote source uses no processor.
    assert chosen({"map 3": remote}, loop_s=0.005, items=100) == {"map 3": 25}
    assert chosen({"map 3": remote}, loop_s=0.0, items=100) == {"map 3": 32}


def test_what_is_chosen_is_used_from_the_next_epoch_on(monkeypatch):
    pipeline = data.source(range(400)).map(abs).map(abs, workers=2).batch(10)
    with pytest.raises(ValueError, match="no item was delivered"):
        pipeline.tune()
    order = [each.tolist() for each in pipeline]
    monkeypatch.setattr(
        "cudasync.data.pipeline.chosen", lambda maps, loop_s, items: dict.fromkeys(maps, 3)
    )
    assert pipeline.tune() == {"map": 3, "map 2": 3}
    assert [each.tolist() for each in pipeline] == order
    assert [each.workers for each in pipeline.stats().stages[1:3]] == [3, 3]


def test_counts_of_a_real_epoch_give_workers():
    pipeline = data.source(range(400)).map(lambda n: sum(range(n))).batch(10)
    list(pipeline)
    assert set(pipeline.tune()) == {"map"}
    assert 1 <= pipeline.tune()["map"] <= tuning.MOST_PER_CORE * tuning.cores()


def test_a_stage_that_climbs_gives_the_same_sequence(monkeypatch):
    monkeypatch.setattr("cudasync.data.concurrency.WINDOW_S", 0.0)
    monkeypatch.setattr("cudasync.data.concurrency.WINDOW_CHUNKS", 1)
    counts = []
    told = Climber.told

    def changing(self, *counted):
        told(self, *counted)
        self.workers = 1 + len(counts) % 5
        counts.append(self.workers)
        return self.workers

    monkeypatch.setattr(Climber, "told", changing)
    pipeline = data.source(range(3000)).map(lambda n: n + 1, workers="auto")
    assert list(pipeline) == list(range(1, 3001))
    assert set(counts) == {1, 2, 3, 4, 5}
    assert pipeline.stats().stages[1].workers == counts[-1]
    list(pipeline.take(1))
    with pytest.raises(ValueError, match="auto"):
        data.source([1]).map(abs, workers="many")
