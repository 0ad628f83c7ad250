"""Floor 2. `Engine.push_many`: several steps, in their order, as one op.

The fast cases are handled here: launches that were a batch before, and functions on variables.
Other batches are read step by step.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from cudasync.engine.batch import device, host
from cudasync.engine.batch.steps import name_for, read
from cudasync.engine.device import device_push
from cudasync.engine.lifecycle import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op

_getframe = sys._getframe
_push_functions = host.push_functions
_push_launches = device_push.push


def push_many(
    self: Engine,
    steps: Iterable[Any],
    name: str | None = None,
    priority: int = 0,
    pool: str | None = None,
) -> Op:
    """Push several steps as one op, which runs them in their order.

    A step is a prepared launch (`kernel.prepare(...)`), a host function `(fn, reads, writes)`, or
    a function of a stream `(fn, reads, writes, device)`, each as for `push`. All run on the host,
    or all on one device. The op reads data that its steps read before they overwrite it, and writes
    all data that its steps write. It is ordered, waited for and timed as one op.

    `op.result()` is a list of the functions' results, None for launches. If a step fails, later
    steps do not run, all data that the batch writes is poisoned, and the error's `op` names the
    step. `pool` is for host functions. An empty batch is an op that does nothing.

    Returns at once, as `push`. Raises TypeError for an object that is no step, ValueError for steps
    of different places and for a kernel that may reach all memory, ClosedError after `close`.
    """
    # A batch adds almost nothing to the cost of its steps, so the work per step counts.
    given = steps if steps.__class__ is tuple else tuple(steps)
    op: Op | None = None
    if not priority and pool is None and given:
        first: Any = given[0]
        if first.__class__ is tuple:
            if self._is_plain:
                op = _push_functions(self, given, name, _getframe(1))
        elif self._is_direct:
            try:
                known = first.latest_batch
                is_known = known is not None and known.is_of(given)
            except AttributeError:
                is_known = False
            if is_known:
                first.tidy()
                op = _push_launches(
                    self,
                    partial(known.on, given),
                    known.accesses,
                    known.name if name is None else name,
                    known.device,
                    _getframe(1),
                    known.names,
                    known.known,
                )
    if op is None:
        op = _push_any(self, given, name, priority, pool, _getframe(1))
    self._ledger.counters.batches[len(given)].next()
    return op


def _push_any(
    engine: Engine,
    given: tuple[Any, ...],
    name: str | None,
    priority: int,
    pool: str | None,
    frame: FrameType,
) -> Op:
    """`push_many` for all but known launches and functions on variables."""
    if engine._is_closed:
        raise refusal.closed()
    if pool is not None:
        engine._pool_named(pool)
    steps = read(engine, given, frame)
    where = steps[0].device if steps else None
    if where is not None and pool is not None:
        raise ValueError(
            "pool= is for host functions; leave it out for device steps, which run on a stream"
        )
    if name is None:
        name = name_for(len(steps))
    if where is None:
        return host.push(engine, steps, name, priority, pool)
    return device.push(engine, given, steps, name, priority, frame)
