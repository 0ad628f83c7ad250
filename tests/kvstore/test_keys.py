"""A "dist_sync" store goes by keys: workers may push them in any order."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.distributed.ranks import lacks_mpi, launch
from hypothesis import settings

PROGRAM = Path(__file__).with_name("keys_program.py")


@pytest.fixture(autouse=True)
def mpi():
    if why := lacks_mpi():
        pytest.skip(why)


def runs(count, *arguments, **environment):
    done = launch(count, PROGRAM, *arguments, **environment)
    assert done.code == 0, done.out + done.err
    assert done.out.count("ok") == count


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("debug", ["0", "1"])
def test_in_any_order_each_key_gets_its_own_values(count, debug):
    runs(count, "right", settings().max_examples, CUDASYNC_DISTRIBUTED_DEBUG=debug)


def test_a_store_that_goes_by_order_is_found():
    runs(2, "by_order", 20)


def test_settings_that_differ_are_told_in_debug_mode():
    runs(2, "differs", 0, CUDASYNC_DISTRIBUTED_DEBUG="1")


def test_a_key_that_some_push_reaches_no_other_key():
    runs(2, "some", 0)
