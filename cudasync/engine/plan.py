"""Floor 2. Planning: from what an op reads and writes to the ops that must come before it.

Planning is one total order over all threads and engines, made by `LOCK`. It is held for
bookkeeping only: never while user code, a driver call or a wait runs. What follows from a plan is
written into the op and into the states, and nowhere else.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cudasync.atomic import Inbox, Tickets
from cudasync.engine.ranges import RangeMap, Region
from cudasync.engine.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.engine.op import Op

LOCK = threading.RLock()
RANGES = RangeMap()
# Ranges whose memory is gone, reported by finalisers, which must not take a lock.
GONE: Inbox[Region] = Inbox()
_numbers = Tickets()

Resource: TypeAlias = State | Region


@dataclass(frozen=True, slots=True)
class Accesses:
    """What an op touches, resolved to states and byte ranges."""

    reads: Sequence[Resource]
    writes: Sequence[Resource]


def plan(op: Op, accesses: Accesses) -> object:
    """Give `op` its number, predecessors and sources, and make it part of the history.

    The caller holds LOCK. What is returned is to be dropped without it: it may be all that keeps
    what users' functions returned, and what ends with that is code of theirs.
    """
    drop_gone()
    op.number = _numbers.next()
    before: dict[Op, None] = {}
    sources: dict[Op, None] = {}
    for resource in accesses.reads:
        for state in _states(resource):
            writer = state.writer
            if writer is not None and (not writer.finished or writer.is_poisoned):
                before[writer] = None
                sources[writer] = None
    for resource in accesses.writes:
        for state in _states(resource):
            if state.writer is not None:
                before[state.writer] = None
            before.update(dict.fromkeys(state.readers))
    for resource in accesses.reads:
        for state in _states(resource):
            state.add_reader(op)
    for resource in accesses.writes:
        _overwrite(resource, op)
    before.pop(op, None)
    op._predecessors = tuple(o for o in before if not o.finished)
    op._sources = tuple(sources)
    RANGES.sweep()
    return before


def writers(resources: Sequence[Resource]) -> list[Op]:
    """The ops that wrote `resources` last and are unfinished or failed. Takes LOCK."""
    found: dict[Op, None] = {}
    with LOCK:
        drop_gone()
        for resource in resources:
            for state in [resource] if isinstance(resource, State) else RANGES.peek(resource):
                if state.writer is not None:
                    found[state.writer] = None
    return list(found)


def adopt(region: Region, op: Op) -> None:
    """Let `op`, which allocated `region`, be its writer. Takes LOCK.

    What the range's former owner did is no longer of interest: the driver hands out memory anew
    only in an order that makes it so.
    """
    with LOCK:
        drop_gone()
        RANGES.write(region, State(op))


def drop_gone() -> None:
    """Forget ranges whose memory was freed since. The caller holds LOCK."""
    while GONE:
        region = GONE.take()
        if region is not None:
            RANGES.forget(region)


def _states(resource: Resource) -> Sequence[State]:
    return (resource,) if isinstance(resource, State) else RANGES.read(resource)


def _overwrite(resource: Resource, op: Op) -> None:
    if isinstance(resource, State):
        resource.writer = op
        resource.readers = []
        resource.writes += 1
    else:
        RANGES.write(resource, State(op))
