"""CUDASYNC_CHECK=1 on random programs finds each declaration that is too narrow, and nothing else.

A model says, element by element, whether an op exceeds its declaration. The ops are kernels called
on views, with and without `In`, `Out` and `InOut`, and device ops of launches, copies and fills.
"""

from __future__ import annotations

import json

import pytest
from helpers.repository.subprocesses import run_module


def ran(*arguments):
    environment = {"CUDASYNC_CHECK": "1", "CUDASYNC_DEVICE": "soft"}
    words = "helpers.checks.declared_programs", *arguments
    code, printed = run_module(*words, deadline_s=300, **environment)
    assert code == 0, printed
    return json.loads(printed)


def wrong(programs):
    """The programs whose outcome differs from the model."""
    return [each for each in programs if each["is_wrong"] != ("not declared" in each["said"])]


@pytest.mark.parametrize(
    ("first", "count"), [(0, 150), pytest.param(1000, 3000, marks=pytest.mark.slow)]
)
def test_what_is_declared_too_narrowly_is_found_and_nothing_else(first, count):
    programs = ran(first, count)
    assert wrong(programs) == []
    # The property is not empty: there are many programs of both kinds.
    assert count // 4 < sum(each["is_wrong"] for each in programs) < count * 3 // 4


def test_a_declaration_that_counts_by_whole_arrays_turns_the_same_search_red():
    """The planted bug: checked mode compares whole allocations, as it once did."""
    assert wrong(ran(0, 40, "blind"))
