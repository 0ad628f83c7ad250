"""Floor 5. A call between processes as a generator of steps, which may change threads in between.

The generator yields functions that say whether its wait is over. The walking thread polls such a
function until it is true, or until the deadline. Ctrl-C during the poll leaves the walk unchanged,
and another thread continues it.
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

# A step polls again when it resumes, so resuming it too early is harmless.
Steps: TypeAlias = Generator[Callable[[], Any], None, Any]


class Walk:
    """The steps of one call and its deadline, counted from the creation of this object."""

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
        """Take the remaining steps on the calling thread, and return their result.

        CollectiveTimeout at the deadline. Passes on the exception of a step.
        """
        steps = self._steps
        try:
            while True:
                if not ranks.poll(next(steps), self._until):
                    steps.throw(CollectiveTimeout(*self._limit))
        except StopIteration as end:
            return end.value


def until_over(requests: list[Any], status: Any = None) -> Steps:
    """Wait for requests of MPI, and remove finished requests from the list."""

    def are_over() -> bool:
        while requests and requests[-1].Test(status):
            requests.pop()
        return not requests

    while not are_over():
        yield are_over
