"""`map(processes=True)`: the same sequence, arrays in shared memory, errors when workers die."""

from __future__ import annotations

import os
import re
import traceback
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers.data import sample_functions as functions
from helpers.data.left_behind import nothing_left_behind

from cudasync import data
from cudasync.data import processes
from cudasync.data.processes.blocks import Block


def mapped(count, fn, **options):
    return data.source(range(count)).map(fn, processes=True, **{"workers": 1, **options})


def test_trees_come_back_as_they_were():
    with nothing_left_behind() as names:
        found = list(mapped(40, functions.tree, workers=2))
        assert names
        for n, each in enumerate(found):
            expected = functions.tree(n)
            assert each["label"] == expected["label"]
            for leaf in ("large", "columns", "gaps", "small"):
                np.testing.assert_array_equal(each[leaf], expected[leaf])
                assert each[leaf].dtype == expected[leaf].dtype
            each["large"][0] = -1  # They are writable, as from a thread.
        del found, each


def shared(array):
    """True if the memory of an array is shared memory."""
    at = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(each, 16) for each in line.partition(" ")[0].split("-"))
        if first <= at < last:
            return "/psm_" in line
    return False


def test_arrays_come_in_shared_memory_and_not_through_the_pipe(monkeypatch):
    through = []
    from multiprocessing.connection import Connection

    whole = Connection._recv_bytes

    def noted(self, maxsize=None):
        buffer = whole(self, maxsize)
        through.append(len(buffer.getvalue()))
        return buffer

    monkeypatch.setattr(Connection, "_recv_bytes", noted)
    found = list(mapped(8, functions.megabyte))
    assert [each[0] for each in found] == list(range(8))
    assert all(map(shared, found))
    assert 0 < sum(through) < 100_000


def test_what_is_kept_is_not_written_again_and_does_not_fill_shared_memory():
    kept = list(mapped(150, functions.megabyte))
    assert [(each == n % 251).all() for n, each in enumerate(kept)] == [True] * 150
    assert 0 < sum(map(shared, kept)) < 100


def test_a_block_that_is_reused_too_early_is_found(monkeypatch):
    monkeypatch.setattr(Block, "is_free", True)
    kept = list(mapped(20, functions.megabyte))
    assert [int(each[0]) for each in kept] != list(range(20))


@pytest.mark.parametrize("size_bytes", [0, 32 << 20])
def test_small_datasets_are_fetched_by_the_processes(size_bytes):
    found = set(data.source(functions.Where(size_bytes)).map(abs, processes=True))
    assert (os.getpid() in found) == bool(size_bytes)


@pytest.mark.parametrize(
    ("pipeline", "stage"),
    [
        (mapped(50, functions.broken, workers=2), "map"),
        (data.source(functions.Corrupt()).map(abs, processes=True), "source"),
        (data.source(functions.Corrupt(32 << 20)).map(abs, processes=True), "source"),
    ],
)
def test_an_exception_has_its_sample_and_the_traceback_from_there(pipeline, stage):
    given = []
    with nothing_left_behind(), pytest.raises(data.DataError) as caught:  # noqa: PT012
        for each in pipeline:
            given.append(each)  # noqa: PERF402
    assert given == list(range(37))
    assert (caught.value.stage, caught.value.index) == (stage, 37)
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    told = "".join(traceback.format_exception(cause))
    assert "in broken" in told
    assert "sample_functions.py" in told


def test_exceptions_and_results_that_can_not_be_sent_are_named():
    with pytest.raises(data.DataError, match=r"sample 5: .*ByteError: bad byte at 5"):
        list(mapped(20, functions.unpicklable_error))
    with pytest.raises(data.DataError, match=r"map, sample 5: .*lambda"):
        list(mapped(20, functions.unpicklable_result))
    with pytest.raises(TypeError, match="cannot be pickled"):
        mapped(20, lambda n: n)


def test_samples_are_skipped_and_counted():
    pipeline = mapped(50, functions.broken, on_error="skip")
    assert list(pipeline) == [n for n in range(50) if n != 37]
    assert pipeline.stats().skipped == 1


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_killed_process_is_named(on_error):
    with nothing_left_behind():
        pipeline = mapped(20, functions.killed, on_error=on_error)
        with pytest.raises(data.DataError) as caught:
            list(pipeline)
        assert caught.value.index <= 5
        cause = caught.value.__cause__
        assert isinstance(cause, ChildProcessError)
        assert re.search(r"'cudasync map 0' \(pid \d+\) was killed by SIGKILL.*sample", str(cause))
        # Of several items nobody knows over which the process died.
        assert (caught.value.item_index is None) == ("over samples" in str(cause))


def test_a_process_that_ends_is_named_with_its_exit_code(capfd):
    with pytest.raises(data.DataError, match=r"map 0' \(pid \d+\) ended with exit code 3"):
        list(mapped(20, functions.ended))


@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_a_process_that_does_not_end_is_killed(end, tmp_path, monkeypatch):
    monkeypatch.setattr(processes.worker_pool, "PATIENCE_S", 0.0)
    begun = tmp_path / "begun"
    with nothing_left_behind():
        # One process is at the second sample for ever, the other one computes the first.
        iterator = iter(mapped(20, partial(functions.endless, begun), workers=2))
        assert next(iterator) == 0
        while not begun.exists():
            os.sched_yield()
        if end == "closed":
            iterator.close()
        del iterator


def test_no_room_for_shared_memory_is_told(monkeypatch):
    def full(handle, offset, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with nothing_left_behind() as names:
        with pytest.raises(data.DataError, match="shm-size"):
            list(mapped(4, functions.megabyte))
        assert names
