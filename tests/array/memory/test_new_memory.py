"""New memory at an old address is unaffected by failures of the old memory there.

A reset ends memory without a notice. Arrays still refer to it, so the engine knows them.
"""

from __future__ import annotations

import pytest
from helpers.repository.subprocesses import run_module


@pytest.mark.parametrize("kind", ["pinned", "buffer", "array"])
@pytest.mark.parametrize("order", ["planned", "in the log"])
def test_memory_after_a_reset_is_not_poisoned_by_what_failed_at_its_address(kind, order):
    # The test has its own process, because memory that other tests freed would be reused first.
    done = run_module("helpers.arrays.reused_addresses", kind, order, deadline_s=100)
    assert done == (0, "read\n")


def test_a_program_that_pushes_nothing_writes_nothing_into_the_log():
    # The test has its own process, because memory that other tests pushed and freed is reused.
    done = run_module("helpers.arrays.reused_addresses", deadline_s=100)
    assert done == (0, "0 of 8\n")
