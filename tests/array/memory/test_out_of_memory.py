"""A full device: unused memory comes back, and an error names the arrays that use the rest."""

from __future__ import annotations

import gc
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers.arrays.scarce_memory import ROOM, little_memory, settle
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of, held_by, quick_switches

import cudasync as cs
from cudasync import xp
from cudasync.array.memory import exhaustion, table
from cudasync.array.memory.exhaustion import wait_for

# One array of this size fits, and two do not.
MOST = ROOM * 5 // 8
HERE = Path(__file__).name


@pytest.fixture
def scarce(device):
    with little_memory(device):
        yield device
        settle()


def filled(value: int, size: int) -> cs.Array:
    made = cs.empty(size, np.uint8)
    made[...] = value
    return made


def test_a_program_that_allocates_and_frees_around_the_limit_runs(scarce):
    """Three of these arrays fit, and each round makes one more beside two."""
    size = ROOM * 5 // 16
    kept = [filled(0, size)]
    for value in range(1, 12):
        kept.append(filled(value, size))
        if len(kept) == 2:
            made = kept[0] + kept[1] if value % 3 else kept[0]
            assert int(made[5]) == (2 * value - 1 if value % 3 else value - 1)
            del made, kept[0]


def test_the_cache_is_freed_before_anybody_is_refused(scarce):
    other = xp.ones(100, device=cs.Device(1 % cs.device_count())) + 1
    del other
    x = xp.ones(MOST // 4)
    del x
    assert cs.memory_stats(0).cached_bytes >= MOST
    assert filled(7, MOST)[-1:].numpy().tolist() == [7]
    if cs.device_count() > 1:
        assert cs.memory_stats(1).cached_bytes >= 400, "the cache of another device helps nobody"


def test_arrays_in_cycles_of_garbage_are_freed(scarce):
    cycle = [filled(1, MOST)]
    cycle.append(cycle)
    del cycle
    assert filled(2, MOST)[:1].numpy().tolist() == [2]


def opening(gate, monkeypatch):
    """Open the gate as soon as a thread waits for memory."""

    def wait(op, deadline, **how):
        gate.set()
        return wait_for(op, deadline, **how)

    monkeypatch.setattr(exhaustion, "wait_for", wait)


def test_frees_that_wait_for_a_last_use_are_waited_for(scarce, monkeypatch):
    gate = threading.Event()
    opening(gate, monkeypatch)
    with engine_of(workers=1) as engine:
        x = filled(1, MOST)
        engine.push(held_by(gate), reads=[x])
        del x
        assert filled(2, MOST)[:1].numpy().tolist() == [2]
    assert gate.is_set()


def test_only_as_much_is_waited_for_as_it_takes(scarce, monkeypatch):
    first, never = threading.Event(), threading.Event()
    opening(first, monkeypatch)
    with engine_of(workers=2) as engine:
        for gate, size in ((first, MOST), (never, ROOM // 8)):
            x = filled(1, size)
            engine.push(held_by(gate), reads=[x])
            del x
        made = cs.empty(MOST, np.uint8)
        assert cs.memory_stats(0).pending_bytes == ROOM // 8
        assert made.nbytes == MOST
        never.set()


def test_who_is_refused_is_told_what_holds_memory(scarce):
    held = cs.zeros((ROOM // 32, 8), np.int16)
    few = [cs.zeros(1000, np.float64) for _ in range(3)]
    with pytest.raises(cs.OutOfMemoryError) as caught:
        cs.empty(MOST, np.uint8)
    error = caught.value
    assert isinstance(error, MemoryError)
    assert isinstance(error, cs.CudaError)
    assert (error.device, error.size_bytes) == (0, MOST)
    assert error.name == "CUDA_ERROR_OUT_OF_MEMORY"
    assert error.table in str(error)
    assert f"{MOST:,} bytes on Device(0)" in str(error)
    rows = [line for line in error.table.splitlines() if HERE in line]
    assert f"{held.nbytes:,}  shape ({ROOM // 32}, 8) int16, written by 'zeros'" in rows[0]
    assert "3 x shape (1000,) float64" in rows[1]
    assert pickle.loads(pickle.dumps(error)).table == error.table
    assert len(few) == 3


def test_after_letting_go_the_next_allocation_succeeds(scarce):
    held = filled(3, MOST)
    with pytest.raises(MemoryError):
        cs.empty(MOST, np.uint8)
    with pytest.raises(MemoryError):
        _ = xp.ones(MOST // 4)
    assert held[:2].numpy().tolist() == [3, 3]
    del held
    assert filled(4, MOST)[:2].numpy().tolist() == [4, 4]


@pytest.mark.parametrize("on_device", [False, True])
def test_an_allocation_that_fails_in_an_op_poisons_exactly_what_depends_on_it(scarce, on_device):
    with engine_of(workers=2) as engine:
        held = filled(1, MOST)
        broken, healed, free = (cs.zeros(4, np.int32) for _ in range(3))

        def ask(*stream: cs.Stream) -> None:
            cs.empty(MOST, np.uint8)

        where = {"device": 0} if on_device else {}
        op = engine.push(ask, reads=[held], writes=[broken, healed], **where)
        dependent = engine.push(lambda: None, reads=[broken])
        cs.copy(healed, np.full(4, 5, np.int32))
        free[...] = 6
        error = op.exception(PATIENCE_S)
        assert isinstance(error.cause, cs.OutOfMemoryError)
        assert "shape (" in error.cause.table
        assert dependent.exception(PATIENCE_S).cause is error.cause
        with pytest.raises(cs.OpError):
            broken.numpy()
        assert healed.numpy().tolist() == [5] * 4
        assert free.numpy().tolist() == [6] * 4
        engine.clear_errors()
        # An error that the program received refers to frames, and so to the array.
        del held, op, dependent, error
        assert engine.push(ask, **where).exception(PATIENCE_S) is None


def test_an_op_does_not_wait_for_memory_that_comes_back_after_it(scarce):
    with engine_of(workers=1) as engine:
        x = filled(1, MOST)
        gate = threading.Event()

        def ask() -> None:
            assert gate.wait(PATIENCE_S)
            cs.empty(MOST, np.uint8)

        op = engine.push(ask, reads=[x])
        del x
        gate.set()
        error = op.exception(PATIENCE_S)
        assert isinstance(error.cause, cs.OutOfMemoryError)
        lines = error.cause.table.splitlines()
        assert f"{MOST:,}" in next(line for line in lines if "still in use by ops" in line)
        engine.clear_errors()


def test_two_ops_that_wait_for_each_others_memory_are_not_held_up_for_ever(scarce):
    with engine_of(workers=2) as engine:
        meet = threading.Barrier(2)

        def ask() -> int:
            meet.wait(PATIENCE_S)
            return cs.empty(MOST, np.uint8).nbytes

        mine = [filled(n, ROOM * 3 // 8) for n in range(2)]
        ops = [engine.push(ask, reads=[each]) for each in mine]
        del mine
        errors = [op.exception(PATIENCE_S) for op in ops]
        refused = [each for each in errors if each is not None]
        assert refused
        assert all(isinstance(each.cause, cs.OutOfMemoryError) for each in refused)
        engine.clear_errors()
    assert cs.empty(MOST, np.uint8).nbytes == MOST


def never(*_, **__):
    raise cs.DeadlockError("planted")


def test_a_cache_that_is_kept_is_found(scarce, monkeypatch):
    monkeypatch.setattr(exhaustion, "empty_pools", lambda ordinal: 0)
    with pytest.raises(MemoryError):
        test_the_cache_is_freed_before_anybody_is_refused(scarce)


def test_garbage_that_nobody_collects_is_found(scarce, monkeypatch):
    monkeypatch.setattr(exhaustion.gc, "collect", lambda: 0)
    # Python must not collect either, at a moment of its choice.
    gc.disable()
    try:
        with pytest.raises(MemoryError):
            test_arrays_in_cycles_of_garbage_are_freed(scarce)
    finally:
        gc.enable()
        monkeypatch.undo()


def test_a_wait_that_nobody_makes_is_found(scarce, monkeypatch):
    """Frees wait behind a gate. The allocating op's thread does not wait for the whole device."""
    with engine_of(workers=2) as engine:
        for makes_it in (True, False):
            gate = threading.Event()
            if makes_it:
                opening(gate, monkeypatch)
            else:
                monkeypatch.setattr(exhaustion, "wait_for", never)
            x = filled(1, MOST)
            engine.push(held_by(gate), reads=[x])
            del x
            op = engine.push(lambda: cs.empty(MOST, np.uint8).nbytes)
            if makes_it:
                assert op.result(PATIENCE_S) == MOST
            else:
                assert isinstance(op.exception(PATIENCE_S).cause, MemoryError)
            gate.set()
            engine.clear_errors()


def test_the_table_disturbs_no_thread_that_makes_tuples():
    """The table must not look at all objects: CPython builds tuples in place.

    Any reference to an unfinished tuple breaks its construction from an iterator.
    """
    kept = [cs.zeros(10) for _ in range(3)]
    is_over, wrong, made = threading.Event(), [], []

    def make_tuples():
        try:
            while not is_over.is_set():
                # The length is unknown, so the tuple grows while it is built.
                tuple(each for each in range(200))
                made.append(1)
        except BaseException as error:
            wrong.append(error)

    maker = threading.Thread(target=make_tuples)
    with quick_switches():
        maker.start()
        try:
            while len(made) < 300 and not wrong:
                table.holders(cs.Device(0))
        finally:
            is_over.set()
            maker.join()
    assert not wrong
    assert len(kept) == 3
