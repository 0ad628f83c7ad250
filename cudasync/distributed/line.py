"""Floor 5. The worker of a communicator between processes: one call after the other, in order.

A call is a host op on a thread of the engine that is this communicator's alone, after the ones
before it by a token variable. Once a call has failed none runs any more: other ranks would meet it
with another one.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.host.memory import view_of
from cudasync.distributed.errors import CommunicatorBroken
from cudasync.engine import Var, engine
from cudasync.engine.host.further import with_pool
from cudasync.engine.pushing import push_site
from cudasync.graph.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.distributed.comparing import Comparing, Told
    from cudasync.distributed.ranks import Ranks
    from cudasync.engine import Op

    # What a call does on host memory: its input and output, contiguous, None where there is none.
    # `limit` is its name, number and seconds; so many parts of the same array are `left`.
    Does = Callable[[Any, Any, tuple[str, int, float], int], None]

_numbers = count()


class Line:
    """The calls of one communicator, on one worker; `broken_by` is what failed first."""

    def __init__(self, ranks: Ranks, timeout: float, comparing: Comparing | None) -> None:
        self._ranks = ranks
        self.token = Var()
        self.broken_by: str | None = None
        self._timeout = timeout
        self._comparing = comparing
        self._pool = f"mpi {next(_numbers)}"
        self._pushed = count()
        # The numbers of the ops that were pushed and did not run: each runs, or a later one tells.
        self._due: deque[int] = deque()

    def push(
        self,
        told: Told,
        x: Any,
        out: Any,
        does: Does,
        priority: int,
        left: int,
        *,
        is_first: bool = True,
    ) -> Op:
        """Push the host op of one part of a call, on arrays of the CPU or NumPy's."""
        name = told.call or "flush"
        current: Any = engine()
        is_recorded = isinstance(current, Recorder)
        with_pool(current.outside if is_recorded else current, self._pool, 1)
        number = -1 if is_recorded else next(self._pushed)
        limit = name, number, self._timeout
        comparing = self._comparing if told.call and is_first else None
        if comparing is not None:
            told = told.at(push_site())

        def run() -> None:
            self._in_turn(number)
            try:
                if comparing is not None:
                    comparing.compare(told, limit)
                _with_memory(x, out, does, limit, left)
            except BaseException as error:
                known = self._ranks.known(error, limit)
                self.broken_by = f"{name}: {known}"
                if known is error:
                    raise
                raise known from None

        if number >= 0:
            self._due.append(number)
        reads = [] if x is None else [x]
        writes = [self.token] if out is None else [out, self.token]
        try:
            op: Op = current.push(
                run, reads=reads, writes=writes, name=name, priority=priority, pool=self._pool
            )
        except Exception:
            # It was refused, and never runs.
            if number >= 0:
                self._due.remove(number)
            raise
        return op

    def _in_turn(self, number: int) -> None:
        """CommunicatorBroken where an earlier call failed, or was poisoned and never ran: what
        other ranks called then waits for us, and must not meet a later call."""
        if number >= 0 and self._due.popleft() != number and self.broken_by is None:
            self.broken_by = "an earlier call did not run here, since what it reads had failed"
        if self.broken_by is not None:
            raise CommunicatorBroken(self.broken_by)


def _with_memory(x: Any, out: Any, does: Does, limit: tuple[str, int, float], left: int) -> None:
    """Do it on contiguous memory: the arrays' own, where they are so and share no bytes."""
    if out is None:
        does(
            None if x is None else np.ascontiguousarray(_view(x)).reshape(x.shape),
            None,
            limit,
            left,
        )
        return
    target = _view(out)
    is_own = target.flags.c_contiguous
    if x is out and is_own:
        does(target, target, limit, left)
        return
    source = None if x is None else _view(x)
    if source is not None and (
        not source.flags.c_contiguous or np.may_share_memory(source, target)
    ):
        source = source.copy()
    got = target if is_own else np.empty(target.shape, target.dtype)
    does(source, got, limit, left)
    if got is not target:
        np.copyto(target, got)


def _view(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else view_of(x)
