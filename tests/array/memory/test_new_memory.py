"""New memory at an old address has nothing to do with what failed there.

A reset ends memory whose end nobody hears of: arrays refer to it still, so the engine knows them.
"""

from __future__ import annotations

import pytest
from helpers.repository.subprocesses import run_module


@pytest.mark.parametrize("kind", ["pinned", "buffer", "array"])
@pytest.mark.parametrize("order", ["planned", "in the log"])
def test_memory_after_a_reset_is_not_poisoned_by_what_failed_at_its_address(kind, order):
    # In a process of its own: what other tests freed would be handed out first.
    done = run_module("helpers.arrays.reused_addresses", kind, order, deadline_s=100)
    assert done == (0, "read\n")


def test_a_program_that_pushes_nothing_writes_nothing_into_the_log():
    # In a process of its own: memory that other tests pushed and freed is handed out again.
    done = run_module("helpers.arrays.reused_addresses", deadline_s=100)
    assert done == (0, "0 of 8\n")
