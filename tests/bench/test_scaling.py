"""The simulation of many ranks agrees with formulas where there are any, and it runs."""

from __future__ import annotations

import json
import math

import pytest

from bench.distributed import scaling
from bench.distributed.scaling_model import Link, crossover, ring, server, step, tree

LINK = Link(latency_s=1e-5, bandwidth=1e9, summing=4e9)
SIZE = 8e6
RANKS = [2, 4, 8, 64]


@pytest.mark.parametrize("n", [1, *RANKS, 3, 7])
def test_a_ring_takes_what_its_formula_says_message_by_message(n):
    assert ring(LINK, n, SIZE, [0.0] * n) == pytest.approx(ring(LINK, n, SIZE))


@pytest.mark.parametrize("n", [1, *RANKS])
def test_a_tree_takes_what_its_formula_says(n):
    """The way back is as long for the last rank, because its senders' lines were busy before."""
    deep = math.log2(n)
    hop = LINK.latency_s + SIZE / LINK.bandwidth
    assert tree(LINK, n, SIZE) == pytest.approx(deep * (2 * hop + SIZE / LINK.summing))


@pytest.mark.parametrize("n", RANKS)
def test_one_server_takes_what_its_line_takes(n):
    found = server(LINK, n, SIZE)
    line = 2 * n * SIZE / LINK.bandwidth
    assert found == pytest.approx(line + 2 * LINK.latency_s + SIZE / LINK.summing)
    assert server(LINK, n, SIZE, n) == pytest.approx(
        2 * SIZE / LINK.bandwidth + 2 * LINK.latency_s + SIZE / n / LINK.summing
    )


@pytest.mark.parametrize("cost", [ring, tree, lambda *given, begins: server(*given, begins=begins)])
def test_who_is_late_holds_all_up(cost):
    begins = [0.0] * 7 + [1.0]
    found = cost(LINK, 8, SIZE, begins=begins)
    assert found > 1
    assert found < 1 + cost(LINK, 8, SIZE, begins=[0.0] * 8) + 1e-9


@pytest.mark.parametrize("n", [4, 16, 1024])
def test_a_crossover_is_where_the_order_changes(n):
    def first(size):
        return ring(LINK, n, size)

    def second(size):
        return tree(LINK, n, size)

    size = crossover(first, second)
    assert first(size / 1.01) > second(size / 1.01)
    assert first(size * 1.01) < second(size * 1.01)


def test_without_a_crossover_it_says_so():
    assert crossover(lambda size: 2.0, lambda size: 1.0) is None
    assert crossover(lambda size: 1.0, lambda size: 2.0) == 0


def test_a_step_hides_all_but_the_last_bucket():
    """This holds while compute is longer. Otherwise the buckets follow each other."""
    assert step(lambda size: 1.0, 30.0, SIZE, 4) == pytest.approx(31.0)
    assert step(lambda size: 100.0, 30.0, SIZE, 4) == pytest.approx(10 + 5 + 400)


def test_the_script_says_times_crossovers_and_steps_up_to_1024_ranks(capsys):
    assert scaling.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == len(scaling.LINKS)
    for each in found:
        for rows in (*each["ms"].values(), each["crossovers"], each["compute share"]):
            assert list(map(int, rows)) == list(scaling.RANKS)
    assert scaling.main(["--link", "TCP"]) == 0
    assert "1024 ranks" in capsys.readouterr().out


def test_a_link_that_is_none_is_refused():
    with pytest.raises(SystemExit, match="above 0"):
        scaling.main(["--latency-us", "1"])
