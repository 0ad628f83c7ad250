"""State of arrays that all threads share: handed-over memory, and idle staging memory."""

from __future__ import annotations

from functools import partial

import numpy as np
from helpers.concurrency.thread_crew import hasty, together

from cudasync.array.copies import staging
from cudasync.array.copies.staging import Staging
from cudasync.array.interchange.stream_ownership import Handed
from cudasync.driver import Device

CREW = 4
ROUNDS = 2000


def test_what_threads_hand_over_at_once_is_noted_part_by_part():
    handed = Handed()

    def work(index):
        start = 100 * index
        for _ in range(ROUNDS):
            handed.add(start, start + 10, 7)
            assert handed.covers(start, start + 10, 7)
            handed.remove(start, start + 10)
            assert not handed.covers(start, start + 10, 7)

    with hasty():
        together(*(partial(work, index) for index in range(CREW)))


def test_idle_memory_is_counted_while_other_threads_begin_to_stage():
    staged, _ = Staging(Device(0)).fill(np.arange(8))
    assert staged.view(np.int64).tolist() == [*range(8)]
    done = []

    def stage():
        mine = []
        while len(done) < 2:
            mine = [*mine[-50:], Staging(Device(0))]

    def look():
        try:
            for _ in range(ROUNDS // 2):
                assert staging.idle_bytes() >= 0
        finally:
            done.append(None)

    with hasty():
        together(stage, stage, look, look)
