"""The answers of an engine to a thread that asks: results of ops, and failures that waits raise."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from helpers.concurrency.thread_crew import quick_switches, together
from helpers.engine_programs.op_functions import PATIENCE_S
from helpers.engine_programs.reference_model import failed

import cudasync as cs

# The threads that ask for everything at a program's end.
ASKING = 2


def result_of(op: cs.Op) -> object:
    error = op.exception(PATIENCE_S)
    return op.result(PATIENCE_S) if error is None else failed(error.op)


def raised(wait) -> object:
    """The failed op that a wait raised, if any."""
    try:
        wait()
    except cs.OpError as error:
        return failed(error.op)
    return None


def raised_for(engine: cs.Engine, places: Mapping[str, Any]) -> dict[str, set[object]]:
    """Wait for each array and token, on several threads at once; returns the failed ops by place.

    Each thread may end the wait of another, which must raise its failure all the same.
    """
    found: dict[str, set[object]] = {name: set() for name in places}

    def ask() -> None:
        with cs.use(engine):
            for name, place in places.items():
                found[name].add(raised(partial(place.wait, PATIENCE_S)))

    with quick_switches():
        together(*[ask] * ASKING)
    return found
