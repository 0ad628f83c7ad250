"""Short ops of arrays on the CPU run in their push, with the same results as on a worker."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of, held_by

import cudasync as cs
from cudasync import xp
from cudasync.array.host.memory import SmallBytes
from cudasync.engine.host import inline_execution


def on_cpu(*values: float) -> cs.Array:
    return cs.array(np.array(values), device="cpu")


def test_a_program_of_short_ops_starts_no_thread_and_is_counted():
    with engine_of(workers=2) as engine:
        x = on_cpu(1, 2, 3)
        for _ in range(20):
            x = x * 2 - 1
        assert x.numpy().tolist() == [1, 2**20 + 1, 2**21 + 1]
        assert not engine._compute.workers
        assert engine.statistics().host_ops == 40


def test_one_that_something_blocks_is_left_to_the_workers_and_so_is_what_follows_it():
    gate = threading.Event()
    with engine_of(workers=2) as engine:
        x, y = on_cpu(1, 2), on_cpu(5, 5)
        engine.push(held_by(gate), writes=[x])
        z = x + y
        z += y
        beside = y * 2
        # `beside` waits for nothing.
        assert beside.numpy().tolist() == [10, 10]
        assert not gate.is_set()
        gate.set()
        assert z.numpy().tolist() == [11, 12]


def test_what_nobody_had_touched_is_looked_at_again():
    """The engine remembers that no range has an array's bytes, until the ranges change."""
    gate = threading.Event()
    with engine_of(workers=2) as engine:
        x, y = on_cpu(1, 2), on_cpu(5, 5)
        for _ in range(3):
            assert (x + y).numpy().tolist() == [6, 7]
        engine.push(held_by(gate), writes=[x])
        late = x + y
        for waited in (x, late):
            with pytest.raises(TimeoutError):
                waited.wait(0)
        y.wait(0)
        gate.set()
        assert late.numpy().tolist() == [6, 7]
        assert (x + y).numpy().tolist() == [6, 7]


def test_a_read_that_is_under_way_keeps_a_write_waiting():
    gate, seen = threading.Event(), []
    with engine_of(workers=1) as engine:
        x = on_cpu(1, 2)
        view = x._allocation.bytes.view(x.dtype)
        engine.push(lambda: (gate.wait(PATIENCE_S), seen.extend(view[:2].tolist())), reads=[x])
        x += 1
        gate.set()
        assert x.numpy().tolist() == [2, 3]
        assert seen == [1, 2]


def fail_in(monkeypatch, error: type[BaseException]) -> None:
    """The functions of short ops raise from now on."""
    right = inline_execution.push

    def push(engine, fn, *rest):
        def wrong():
            raise error("not today")

        return right(engine, wrong, *rest)

    monkeypatch.setattr(inline_execution, "push", push)


def test_one_that_fails_poisons_what_reads_it_and_nothing_else(monkeypatch):
    with engine_of(workers=1) as engine:
        x, y = on_cpu(1, 2), on_cpu(3, 4)
        with monkeypatch.context() as patch:
            fail_in(patch, MemoryError)
            z = x + y
        late = (z * 2).to_device(0) + 1
        for each in (z, late):
            with pytest.raises(cs.OpError, match="not today"):
                each.numpy()
        assert (x * y).numpy().tolist() == [3, 8]
        # An array that reuses a dead result's bytes does not inherit its failure.
        del z, late
        assert (x - y).numpy().tolist() == [-2, -2]
        engine.clear_errors()


def test_ctrl_c_in_the_middle_of_one_is_raised_by_the_push_and_the_engine_is_whole(monkeypatch):
    with engine_of(workers=1) as engine:
        x = on_cpu(1, 2)
        with monkeypatch.context() as patch:
            fail_in(patch, KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                x += 1
        with pytest.raises(cs.OpError):
            x.numpy()
        engine.clear_errors()
        assert (x + 1).numpy().tolist() == [2, 3]


def test_ctrl_c_at_any_instruction_leaves_every_array_whole():
    """Each addition was done or not done, and the program goes on."""
    with engine_of(workers=1) as engine:
        x, one = on_cpu(0, 0), on_cpu(1, 1)
        before = signal.getsignal(signal.SIGALRM)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        try:
            for number in range(150):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (20 + number))
                    while True:
                        x += one
                except KeyboardInterrupt:
                    # The interrupt came, and no other will.
                    pass
                engine.clear_errors()
                left, right = x.numpy().tolist()
                assert left == right
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def test_the_bytes_of_a_small_result_go_on_to_the_next_unless_somebody_has_them():
    x = on_cpu(1, 2)
    z = x + 1
    place = z.ptr
    assert isinstance(z._allocation, SmallBytes)
    del z
    z = x + 2
    assert z.ptr == place
    kept = np.from_dlpack(z)
    del z
    assert (x + 3).ptr != place
    assert kept.tolist() == [3, 4]


def test_a_result_that_is_only_looked_at_leaves_its_bytes_to_the_next():
    x = on_cpu(1, 2)
    idle = x.layout.idle
    idle.clear()
    for number in range(5):
        assert (x + number).numpy().tolist() == [1 + number, 2 + number]
        assert len(idle) == 1
    kept = [x + number for number in range(200)]
    assert len({each.ptr for each in kept}) == 200
    del kept
    # The idle list is full, at its maximum length.
    assert len(idle) == idle.maxlen


def test_arrays_of_one_layout_in_one_memory_are_each_what_they_are():
    """The memory keeps one array's NumPy view of all its bytes. It fits no other array."""
    x = on_cpu(1, 2, 3, 4)
    rows = [xp.broadcast_to(x[at : at + 2], (2, 2)) for at in (0, 2)]
    assert rows[0].layout is rows[1].layout
    backwards = x[::-1]
    for _ in range(2):
        assert [(each + 0).numpy()[0].tolist() for each in rows] == [[1, 2], [3, 4]]
        assert (backwards + x).numpy().tolist() == [5, 5, 5, 5]
        assert (x[1:] + x[:-1]).numpy().tolist() == [3, 5, 7]


def test_the_same_number_as_before_is_the_same_and_another_is_another():
    x = on_cpu(1.0, 2.0)
    for number in (2, 2, 2.5, np.float64(3), 1e300, 1e300):
        assert (x * number).numpy().tolist() == [number, 2 * number]
    small = xp.astype(x, xp.float32)
    assert (small * 1e300).numpy().tolist() == [np.inf, np.inf]
    assert (xp.astype(x, xp.int8) + 5).numpy().tolist() == [6, 7]
    with pytest.raises(OverflowError):
        xp.astype(x, xp.int8) + 500


def test_threads_that_push_short_ops_at_once_each_get_the_serial_answer():
    with engine_of(workers=2):
        shared = on_cpu(0, 0, 0)
        found = []

        def work(number: int) -> None:
            mine = on_cpu(number, number, number)
            for _ in range(200):
                mine = mine + 1
                xp.add(shared, mine * 0 + 1, out=shared)
            found.append(mine.numpy().tolist() == [number + 200] * 3)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert found == [True] * 4
        assert shared.numpy().tolist() == [800] * 3
