"""Floor 5. The worker of a communicator between processes: one call after the other, in order.

A call is a host op, ordered behind earlier calls by a token variable. Its steps run on a worker of
this communicator alone, or on the thread that waits for the call. Once a call has failed, no later
call runs, because other ranks would match it with a different call.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.host.memory import view_of
from cudasync.distributed.errors import CommunicatorBroken
from cudasync.distributed.resumable_calls import Walk
from cudasync.engine import Var, engine
from cudasync.engine.general_push import push_site
from cudasync.engine.host import awaited_pool
from cudasync.engine.host.additional_pools import with_pool
from cudasync.graph.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.distributed.call_comparison import Comparing, Told
    from cudasync.distributed.mpi_library import Limit
    from cudasync.distributed.ranks import Ranks
    from cudasync.distributed.resumable_calls import Steps
    from cudasync.engine import Op

    # The steps of a call on host memory. Arguments: contiguous input and output, each None if the
    # call has none, and the number of parts of the same array that are still to be called.
    Does = Callable[[Any, Any, int], Steps]

_numbers = count()


class Line:
    """The calls of one communicator, on one worker; `broken_by` is what failed first.

    A line `beside` another one has a token of its own. Both have one worker, and break together.
    """

    def __init__(
        self,
        ranks: Ranks,
        timeout: float,
        comparing: Comparing | None,
        beside: Line | None = None,
    ) -> None:
        self.ranks = ranks
        self.token = Var()
        self._failures: list[str] = [] if beside is None else beside._failures
        self._timeout = timeout
        self.comparing = comparing
        self._pool: str = f"mpi {next(_numbers)}" if beside is None else beside._pool
        self._pushed = count()
        # The numbers of ops that were pushed and have not run. If one never runs, a later op
        # notices.
        self._due: deque[int] = deque()

    @property
    def broken_by(self) -> str | None:
        """What failed first; None if nothing did."""
        return self._failures[0] if self._failures else None

    def note_failure(self, what: str) -> None:
        """Refuse all later calls."""
        self._failures.append(what)

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
        with_pool(
            current.outside if is_recorded else current, self._pool, 1, awaited_pool.AwaitedPool
        )
        number = -1 if is_recorded else next(self._pushed)
        comparing = self.comparing if told.call and is_first else None
        if comparing is not None:
            told = told.at(push_site())
        limit = name, number, self._timeout

        def steps() -> Steps:
            if comparing is None:
                return _with_memory(x, out, does, left)
            return _behind(comparing.compare(told, limit), lambda: _with_memory(x, out, does, left))

        call: Any = _Call(self, limit, steps)
        if number >= 0:
            self._due.append(number)
        else:
            # Each launch of a graph is a new walk.
            call = call.run_anew
        reads = [] if x is None else [x]
        writes = [self.token] if out is None else [out, self.token]
        pool = self._pool
        try:
            op: Op = (
                current.push(call, reads, writes, name, priority, pool=pool)
                if is_recorded
                else awaited_pool.push(current, call, pool, reads, writes, name, priority)
            )
        except Exception:
            # The push was refused, so the op never runs.
            if number >= 0:
                self._due.remove(number)
            raise
        return op

    def in_turn(self, number: int) -> None:
        """Raise CommunicatorBroken if an earlier call failed, or was poisoned and never ran.

        The matching calls of other ranks then wait for this rank. A later call must not match them.
        """
        if number >= 0 and self._due.popleft() != number and not self._failures:
            self.note_failure(
                "an earlier call did not run here, because an op that wrote its input failed"
            )
        if self._failures:
            raise CommunicatorBroken(self._failures[0])


class _Call:
    """The function of one op. It is called again if Ctrl-C ended it while it polled."""

    __slots__ = ("_limit", "_line", "_steps", "_walk")

    def __init__(self, line: Line, limit: Limit, steps: Callable[[], Steps]) -> None:
        self._line = line
        self._limit = limit
        self._steps = steps
        self._walk: Walk | None = None

    @property
    def can_go_on(self) -> bool:
        """True between two steps."""
        return self._walk is not None and self._walk.can_go_on

    def __call__(self) -> None:
        line = self._line
        try:
            if self._walk is None:
                line.in_turn(self._limit[1])
                self._walk = Walk(self._steps(), self._limit)
            self._walk.go_on(line.ranks)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self.can_go_on:
                raise
            known = line.ranks.known(error, self._limit)
            line.note_failure(f"{self._limit[0]}: {known}")
            if known is error:
                raise
            raise known from None

    def run_anew(self) -> None:
        """Run the call from its beginning."""
        _Call(self._line, self._limit, self._steps)()


def _behind(first: Steps, second: Callable[[], Steps]) -> Steps:
    yield from first
    yield from second()


def _with_memory(x: Any, out: Any, does: Does, left: int) -> Steps:
    """The steps of `does` on contiguous memory.

    It uses the arrays' own memory if they are contiguous and share no bytes.
    """
    if out is None:
        sent = None if x is None else np.ascontiguousarray(_view(x)).reshape(x.shape)
        return does(sent, None, left)
    target = _view(out)
    is_own = target.flags.c_contiguous
    if x is out and is_own:
        return does(target, target, left)
    source = None if x is None else _view(x)
    if source is not None and (
        not source.flags.c_contiguous or np.may_share_memory(source, target)
    ):
        source = source.copy()
    if is_own:
        return does(source, target, left)
    return _copied_back(target, source, does, left)


def _copied_back(target: Any, source: Any, does: Does, left: int) -> Steps:
    got = np.empty(target.shape, target.dtype)
    yield from does(source, got, left)
    np.copyto(target, got)


def _view(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else view_of(x)
