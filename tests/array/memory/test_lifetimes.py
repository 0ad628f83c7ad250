"""Arrays that are dropped before work that uses them has run: the free waits for the work.

Memory that is freed too early would go to a new array and be overwritten. So the tests fill each
new array at once.
"""

from __future__ import annotations

import gc
import random
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, hasty, held_by

import cudasync as cs

KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"
N = 64


@pytest.fixture
def engine(latch):
    with engine_of(streams=3, workers=2) as engine:
        yield engine
        latch.release()


@pytest.fixture
def set_():
    return cs.Module.from_file(KERNELS).kernel("set")


def fill(set_, array, value: int) -> None:
    set_[1, N](cs.Out(array), np.int32(value), np.uint32(N))


def overwrite_whatever_is_free(set_, count: int = 30) -> list[cs.Array]:
    arrays = [cs.empty(N, np.int32) for _ in range(count)]
    for array in arrays:
        fill(set_, array, -1000)
    return arrays


def is_from(value: int, array) -> bool:
    return array.numpy().tolist() == list(range(value, value + N))


def test_an_array_that_a_held_kernel_will_read_is_not_handed_out(engine, device, latch, set_):
    source, target = cs.empty(N, np.int32), cs.empty(N, np.int32)
    fill(set_, source, 7)
    engine.waitall(PATIENCE_S)
    engine.push(latch.hold, reads=[source], writes=[target], device=device)
    cs.copy(target, source)
    del source
    gc.collect()
    others = overwrite_whatever_is_free(set_)
    latch.release()
    assert is_from(7, target)
    assert all(is_from(-1000, other) for other in others)


def test_an_array_that_a_host_op_will_read_is_not_handed_out(engine, set_):
    gate = threading.Event()
    source, target = cs.empty(N, np.int32), cs.empty(N, np.int32)
    fill(set_, source, 7)
    engine.waitall(PATIENCE_S)
    engine.push(held_by(gate), writes=[target])
    cs.copy(target, source)
    del source
    gc.collect()
    others = overwrite_whatever_is_free(set_)
    gate.set()
    assert is_from(7, target)
    assert all(is_from(-1000, other) for other in others)


def test_readers_on_several_streams_all_come_before_the_free(engine, device, latch, set_):
    source = cs.empty(N, np.int32)
    fill(set_, source, 3)
    targets = [cs.empty(N, np.int32) for _ in range(6)]
    engine.waitall(PATIENCE_S)
    for target in targets:
        engine.push(latch.hold, writes=[target], device=device)
        cs.copy(target, source)
    del source
    gc.collect()
    others = overwrite_whatever_is_free(set_)
    latch.release()
    assert all(is_from(3, target) for target in targets)
    assert all(is_from(-1000, other) for other in others)


def test_the_last_view_decides_and_a_cycle_of_garbage_counts(engine, device, latch, set_):
    class Holder:
        def __init__(self, array: cs.Array) -> None:
            self.array, self.me = array, self

    array, target = cs.empty(2 * N, np.int32), cs.empty(N, np.int32)
    view = array[N:]
    fill(set_, view, 11)
    engine.waitall(PATIENCE_S)
    holder = Holder(array[1:])
    del array
    gc.collect()
    first = overwrite_whatever_is_free(set_)
    assert is_from(11, view)
    engine.push(latch.hold, writes=[target], device=device)
    cs.copy(target, view)
    del view, holder
    gc.collect()
    second = overwrite_whatever_is_free(set_)
    latch.release()
    assert is_from(11, target)
    assert all(is_from(-1000, other) for other in first + second)


def test_an_array_whose_engine_is_closed_or_gone_is_freed_after_its_last_use(device, latch, set_):
    """The use is on another engine, which is blocked."""
    with engine_of(streams=2) as user:
        with cs.Engine() as owner:
            source = cs.empty(N, np.int32)
            fill(set_, source, 5)
        with cs.use(user):
            target = cs.empty(N, np.int32)
            user.push(latch.hold, writes=[target], device=device)
            cs.copy(target, source)
            del source, owner
            gc.collect()
            others = overwrite_whatever_is_free(set_)
            latch.release()
            assert is_from(5, target)
            assert all(is_from(-1000, other) for other in others)


def test_a_poisoned_use_still_comes_after_the_uses_before_it_and_then_the_free(
    engine, device, latch, set_
):
    def fail() -> None:
        raise ValueError("planned")

    source, target, token = cs.empty(N, np.int32), cs.empty(N, np.int32), cs.Var()
    fill(set_, source, 9)
    engine.waitall(PATIENCE_S)
    engine.push(latch.hold, writes=[target], device=device)
    cs.copy(target, source)
    engine.push(fail, writes=[token])
    engine.push(lambda: None, reads=[token], writes=[source])
    del source
    gc.collect()
    others = overwrite_whatever_is_free(set_)
    latch.release()
    assert is_from(9, target)
    assert all(is_from(-1000, other) for other in others)
    engine.clear_errors()


def test_temporaries_made_and_dropped_by_many_threads_hold_what_was_put_there(engine, set_):
    with hasty(), Crew() as crew:

        def work(base: int) -> None:
            with cs.use(engine):
                for index in range(40):
                    value = base + index
                    x = cs.empty(N, np.int32)
                    fill(set_, x, value)
                    y = cs.empty_like(x)
                    cs.copy(y, x)
                    del x
                    z = cs.zeros(N, np.int32)
                    assert is_from(value, y)
                    assert not z.numpy().any()

        for thread in range(3):
            crew.start(work, 10_000 * thread)


def test_temporaries_of_host_ops_hold_what_was_put_there(engine, set_):
    def work(value: int) -> bool:
        x = cs.empty(N, np.int32)
        fill(set_, x, value)
        y = cs.empty_like(x)
        cs.copy(y, x)
        del x
        return is_from(value, y)

    ops = [engine.push(lambda v=value: work(v)) for value in range(60)]
    assert all(op.result(PATIENCE_S) for op in ops)


@pytest.mark.parametrize("seed", range(6))
def test_random_drops_between_held_streams_lose_nothing(seed, engine, device, latch, set_):
    chooser = random.Random(seed)
    live: list[tuple[int, cs.Array]] = []
    results: list[tuple[int, cs.Array]] = []
    held: list[cs.Op] = []
    for step in range(60):
        if len(live) < 3 or chooser.random() < 0.4:
            array = cs.empty(N, np.int32)
            fill(set_, array, 100 * step)
            live.append((100 * step, array))
        elif chooser.random() < 0.5:
            value, array = chooser.choice(live)
            target = cs.empty(N, np.int32)
            if chooser.random() < 0.3:
                held.append(engine.push(latch.hold, writes=[target], device=device))
            cs.copy(target, array)
            results.append((value, target))
            del array, target
        else:
            live.pop(chooser.randrange(len(live)))
        if chooser.random() < 0.05:
            latch.release()
    latch.release()
    assert all(is_from(value, array) for value, array in [*results, *live])


def test_host_memory_that_an_op_names_lives_as_long_as_the_op_needs_it(engine):
    """The op copies from an array that the caller drops at once."""
    gate = threading.Event()
    target = cs.zeros(N, np.int32)
    engine.waitall(PATIENCE_S)
    engine.push(held_by(gate), writes=[target])
    host = np.arange(N, dtype=np.int32)
    gone = weakref.ref(host)
    cs.copy(target, host)
    del host
    gc.collect()
    clutter = [np.full(N, -1, np.int32) for _ in range(50)]
    gate.set()
    assert target.numpy().tolist() == list(range(N))
    assert len(clutter) == 50
    engine.waitall(PATIENCE_S)
    # The stream releases the operands of its copies occasionally.
    for _ in range(300):
        cs.copy(target, np.zeros(N, np.int32)).wait(PATIENCE_S)
    gc.collect()
    assert gone() is None
