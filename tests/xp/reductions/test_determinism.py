"""A reduction gives the same bits for any order of commands and beside any other work."""

from __future__ import annotations

import pytest
from helpers.repository.subprocesses import run_text

SCHEDULERS = ("fifo", "seed=1", "seed=7", "threaded")
PROGRAM = """
import hashlib
import numpy as np
import cudasync as cs
from cudasync import xp
from cudasync.array.reductions import stages
stages._OF_A_BLOCK = {part}
rng = np.random.default_rng(11)
host = (rng.normal(size=(300, 350)) * np.exp(rng.uniform(-20, 20, (300, 350)))).astype(np.float32)
x = cs.array(host)
found = []
for turn in range(3):
    # Writes before and beside, memory that is used again, and results that go unread.
    y = x + turn - turn
    x *= 1
    found += [xp.sum(y), xp.sum(x, axis=0), xp.var(y), xp.cumulative_sum(xp.sum(x, axis=1))]
    xp.sum(y * 2)
data = b"".join(each.numpy().tobytes() for each in found)
print(hashlib.sha256(data).hexdigest())
"""


def bits(scheduler, part=1 << 14):
    environment = {"CUDASYNC_DEVICE": "soft", "CUDASYNC_SOFTGPU_SCHEDULER": scheduler}
    code, printed = run_text(PROGRAM.format(part=part), 200, **environment)
    assert code == 0, printed
    return printed.strip()


@pytest.fixture(scope="module")
def expected():
    return bits("fifo")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheduler", SCHEDULERS[1:])
def test_a_reduction_gives_the_same_bits_under_every_scheduler(scheduler, expected):
    assert bits(scheduler) == expected


def test_another_order_of_additions_gives_other_bits(expected):
    """These sums are not exact, so the bits show the order."""
    assert bits("fifo", 1 << 13) != expected
