"""Floor 5. A call between processes as steps: who takes them may change in between.

A call is a generator that yields what it waits for: a function that says whether it is so. Whoever
walks asks until it is, or the deadline has come. Ctrl-C while it asks leaves the walk as it was:
another thread goes on with it.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from cudasync.distributed.errors import CollectiveTimeout

if TYPE_CHECKING:
    from cudasync.distributed.mpi_library import Limit
    from cudasync.distributed.ranks import Ranks

# A step asks once more when it is gone on with, so to go on too early is harmless.
Steps: TypeAlias = Generator[Callable[[], Any], None, Any]


class Walk:
    """The steps of one call and its deadline, which is counted from here on."""

    __slots__ = ("_limit", "_steps", "_until")

    def __init__(self, steps: Steps, limit: Limit) -> None:
        self._steps = steps
        self._limit = limit
        self._until = time.monotonic() + limit[2]

    @property
    def can_go_on(self) -> bool:
        """True unless the steps have ended or failed."""
        return inspect.getgeneratorstate(self._steps) != inspect.GEN_CLOSED

    def go_on(self, ranks: Ranks) -> Any:
        """Take the steps that are left, on the calling thread; what they return.

        CollectiveTimeout at the deadline. Raises what a step raises.
        """
        steps = self._steps
        try:
            while True:
                if not ranks.poll(next(steps), self._until):
                    steps.throw(CollectiveTimeout(*self._limit))
        except StopIteration as end:
            return end.value


def until_over(requests: list[Any], status: Any = None) -> Steps:
    """Wait for requests of MPI, and take those that are over out of the list."""

    def are_over() -> bool:
        while requests and requests[-1].Test(status):
            requests.pop()
        return not requests

    while not are_over():
        yield are_over
