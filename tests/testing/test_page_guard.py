"""Guarded pages tell who touches them, and a real fault stays one."""

from __future__ import annotations

import ctypes
import gc
import signal
import threading

import numpy as np
import pytest
from helpers.repository.subprocesses import run_program

from cudasync.testing.page_guard import Guards, pages_of_their_own


@pytest.fixture
def touches():
    return []


@pytest.fixture
def guards(touches):
    guards = Guards(lambda guard, frame: touches.append((guard, frame and frame.f_lineno)))
    yield guards
    guards.end()


def bytes_of(array):
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes


@pytest.mark.parametrize("size", [1, 5, 4096, 4097, 1 << 20])
@pytest.mark.parametrize("make", [np.zeros, np.empty, np.ones])
def test_arrays_share_their_pages_with_nothing(guards, make, size):
    with pages_of_their_own():
        arrays = [make(size, np.uint8) for _ in range(4)]
    pages = [{each // 4096 for each in range(*bytes_of(array))} for array in arrays]
    assert sum(map(len, pages)) == len(set().union(*pages))
    assert all(guards.can_guard(array) and guards.can_guard(array[-1:]) for array in arrays)
    foreign = [make(size, np.uint8), np.frombuffer(arrays[0].tobytes(), np.uint8), arrays[0][:0]]
    assert not any(guards.can_guard(array) for array in foreign)


def test_zeros_are_zeros_and_arrays_are_resized_and_freed_as_ever():
    with pages_of_their_own():
        for n in range(0, 10_000, 501):
            array = np.full(n, 7)
            array.resize(2 * n, refcheck=False)
            assert array.sum() == 7 * n
            del array
            assert not np.zeros(n).any()
    gc.collect()


def test_the_first_touch_is_told_with_its_line_and_later_ones_are_not(guards, touches):
    with pages_of_their_own():
        array = np.arange(8)
    guard = guards.close(array)
    assert not guard.is_open
    assert array[3] == 3
    line = test_the_first_touch_is_told_with_its_line_and_later_ones_are_not.__code__
    assert touches == [(guard, line.co_firstlineno + 5)]
    assert guard.is_open
    array[:] = 0
    assert len(touches) == 1


def test_a_touch_beside_the_guarded_bytes_is_not_told(guards, touches):
    with pages_of_their_own():
        array = np.zeros(64, np.uint8)
    guard = guards.close(array[16:8:-1])
    array[20] = 1
    assert guard.is_open
    assert not touches


def test_opened_bytes_are_touched_unnoticed(guards, touches):
    with pages_of_their_own():
        array = np.zeros(64, np.uint8)
    guards.open(guards.close(array))
    assert not array.any()
    assert not touches


def test_threads_that_touch_at_once_all_go_on(guards, touches):
    with pages_of_their_own():
        arrays = [np.ones(1000) for _ in range(4)]
    for _ in range(50):
        closed = [guards.close(each) for each in arrays]
        barrier, sums = threading.Barrier(4), []

        def add(barrier=barrier, sums=sums):
            barrier.wait()
            sums.extend(float(each.sum()) for each in arrays)

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sums == [1000] * 16
        assert all(each.is_open for each in closed)
    assert len(touches) >= 200


PRELUDE = """
    import ctypes, gc
    import numpy as np
    from cudasync.testing.page_guard import Guards, pages_of_their_own
    guards = Guards(lambda *_: print("touched", flush=True))
    with pages_of_their_own():
        array = np.zeros(1 << 26, np.uint8)
    start = array.__array_interface__["data"][0]
"""


@pytest.mark.parametrize(
    "fault",
    ["ctypes.string_at(16)", "del array; ctypes.string_at(start)"],
    ids=["nobody's memory", "a freed block"],
)
def test_a_real_fault_still_ends_the_process(fault):
    code, printed = run_program(f"{PRELUDE}    {fault}")
    assert (code, printed.strip()) == (-signal.SIGSEGV, "")


def test_the_former_handler_is_back_in_the_end():
    def handler():
        action = (ctypes.c_uint8 * 152)()
        ctypes.CDLL(None).sigaction(signal.SIGSEGV, None, action)
        return bytes(action[:8])

    before = handler()
    guards = Guards(lambda *_: None)
    assert handler() != before
    guards.end()
    assert handler() == before
