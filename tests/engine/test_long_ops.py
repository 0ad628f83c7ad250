"""Long host ops that release the GIL spread over the workers, and over no more than there are."""

from __future__ import annotations

import hashlib
import random
import time
from threading import get_ident

import pytest

import cudasync as cs
from cudasync.engine import worker

OPS = 250
BURSTS = 5


@pytest.fixture
def engine():
    with cs.Engine(workers=2) as engine:
        yield engine


def data_to_hash_for(seconds: float) -> bytes:
    """As much as takes about so long to hash, which releases the GIL."""
    data = bytes(1 << 18)
    started = time.perf_counter()
    hashlib.sha256(data).digest()
    return data * max(1, round(seconds / (time.perf_counter() - started)))


def threads_of_a_burst(engine: cs.Engine, data: bytes, ops: int = OPS) -> list[int]:
    """Which thread ran each op of a graph of ops that hash `data`."""
    draw = random.Random(ops)
    variables = [cs.Var() for _ in range(16)]
    threads: list[int] = []

    def op() -> None:
        threads.append(get_ident())
        hashlib.sha256(data).digest()

    for _ in range(ops):
        engine.push(op, reads=draw.sample(variables, 2), writes=draw.sample(variables, 1))
    engine.waitall()
    assert len(threads) == ops
    return threads


# Shorter and longer than the naps of a worker that watches.
@pytest.mark.parametrize("milliseconds", [0.25, 0.6])
def test_both_workers_take_part_in_every_burst(engine, milliseconds):
    data = data_to_hash_for(milliseconds / 1000)
    for _ in range(BURSTS):
        assert len(set(threads_of_a_burst(engine, data))) == 2


def test_no_worker_is_added_because_all_is_planned_while_ops_run(engine):
    """Once nothing is left to plan, planning stands still: that alone is no sign of trouble."""
    seen = set()
    for _ in range(BURSTS):
        seen |= set(threads_of_a_burst(engine, data_to_hash_for(0.5e-3)))
    assert len(seen) <= 2


def test_short_ops_go_back_to_leaving_no_trace(engine):
    """After long ops, so many short ones in a row, and no op gets a record any more."""
    threads_of_a_burst(engine, data_to_hash_for(0.5e-3))
    pool = engine._compute
    assert pool.spread == worker.SPREAD
    variable = cs.Var()
    for _ in range(4 * worker.SPREAD):
        engine.push(lambda: None, writes=variable)
        engine.waitall()
    assert pool.spread == 0


def test_ops_are_counted_exactly_at_once_planned_or_failed(engine):
    for count in (1, 10, 100):
        before = engine.statistics()
        variable = cs.Var()
        for number in range(count):
            engine.push(lambda number=number: 1 / (number % 3), writes=variable)
        with pytest.raises(cs.OpError):
            engine.waitall()
        engine.clear_errors()
        threads_of_a_burst(engine, b"", 60)
        after = engine.statistics()
        failed = len(range(0, count, 3))
        assert after.host_ops - before.host_ops == count - failed + 60
        assert after.failed_ops - before.failed_ops == failed
