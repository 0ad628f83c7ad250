"""Floor 2. Planning one op: finds its predecessors in the histories of its accesses.

The plan is a function of the log before the op, so any thread may plan the op, also twice:

- the join gate is published first (the first published gate counts), then the histories change,
  then the gate becomes a listener of the predecessors;
- each store sets the value that planning the op again would set.

`enter_op` and `is_clear` are methods of the combiner, which comes here with each op of the log.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from cudasync.engine.hazards.damage import Origins
from cudasync.engine.hazards.non_poisoning_reads import unheard_of
from cudasync.engine.hazards.predecessors import predecessors
from cudasync.engine.last_on_streams import last_on_streams
from cudasync.engine.log import node as nodes
from cudasync.engine.log.histories import history_of, let_rest
from cudasync.engine.log.node import OPEN, PLANNING, JoinGate, TracedGate
from cudasync.engine.op_classes import DeviceOp, Fence, FullOp, PlainOp, ShortOp

if TYPE_CHECKING:
    from cudasync.engine.hazards.history import History
    from cudasync.engine.hazards.interval_map import IntervalMap, Region
    from cudasync.engine.log.combiner import Combiner
    from cudasync.engine.op import Op

_SALVAGE = attrgetter("_salvage")


def enter_op(self: Combiner, op: Op, number: int, epoch: int) -> None:
    """Plan `op`, and give it to its place if nothing blocks it."""
    is_over = op.finished
    if is_over and op.failure is None and op._node is None and op._before is None:
        # It has run and left nothing to remember. (With `_before`, its push has issued it: it may
        # have healed poisoned data, on histories that were copied since.)
        op.number = number
        return
    ranges = self.ranges_of(epoch) if op._regions is not None else None
    reads: list[History] = []
    writes: list[History] = []
    # Even an empty comprehension costs a call.
    if op._reads:
        reads = [each._histories.get(epoch) or history_of(each, epoch) for each in op._reads]
    if op._writes:
        writes = [each._histories.get(epoch) or history_of(each, epoch) for each in op._writes]
    overwritten: tuple[Region, ...] = ()
    # Histories that order the op and do not poison it.
    unheard: list[History] = []
    if ranges is not None:
        assert op._regions is not None
        only_read, updated, written = op._regions
        named = only_read + updated
        reads += ranges.read_all(named)
        overwritten = updated + written
        unheard = unheard_of(ranges, named, reads)
    node, gate = op._node or nodes.of(op), None
    if not is_over:
        gates = node.gates
        if gates:
            gate = gates[0]
        else:
            seen = writes
            if overwritten:
                assert ranges is not None
                seen = writes + [each for region in overwritten for each in ranges.peek(region)]
            sources = reads
            if unheard:
                seen = seen + unheard
                # A set: where an op accesses all memory, these are thousands.
                deaf = set(unheard)
                sources = [each for each in reads if each not in deaf]
            if seen or sources or op.__class__ is Fence:
                made = _plan(op, sources, seen, reads, ranges)
            else:
                made = OPEN
            # `offer`, inlined.
            gates.append(made)
            gate = gates[0]
            if gate is not made and made is not OPEN:
                # Nobody uses the lost gate, or clears it when the op is over.
                made.let_go()
    if op.__class__ is PlainOp:
        op._number = number
    else:
        op.number = number
    if ranges is not None:
        ranges.latest = -1
    for history in reads:
        history.add_reader(op)
    for history in writes:
        history.overwrite(op)
    if ranges is not None:
        for region in overwritten:
            ranges.overwrite(region, op)
        ranges.sweep()
    if gate is None:
        return
    op._engine._registered[op] = op._fn
    if gate is OPEN:
        if not op.finished:
            op._pool.put(op)
    else:
        has_others = False
        for before in gate.before:
            kind = before.__class__
            if kind is PlainOp or kind is FullOp or kind is ShortOp:
                # `_listen`, inlined for ops that notify by themselves.
                (before._node or nodes.of(before)).listeners.append(gate)
                if before.finished:
                    gate.arrive(before)
                continue
            has_others = True
            if not _listen(before, op, gate):
                gate.arrive(before)
        if has_others and not _leaves_waits_to_the_driver(op):
            for last in last_on_streams(gate.before):
                last._pool.watch(last)
        gate.notify(PLANNING)
    node.is_planned = True
    if op.finished:
        # It ended while it was entered: its ender may not have seen the plan.
        op._engine._registered.pop(op, None)
        if gate is not OPEN:
            gate.let_go()


def is_clear(self: Combiner, op: Op, epoch: int) -> bool:
    """True if `op` may run at once, and needs no histories while the combiner runs it."""
    resolved = op._resolved
    if resolved is None or resolved.has_histories():
        for variable in op._reads + op._writes:
            if variable._histories:
                if not history_of(variable, epoch).rest():
                    return False
                if resolved is not None:
                    # Without a history the next check of the variable is faster.
                    let_rest(variable, epoch)
    if op._regions is not None:
        ranges = self.ranges.get(epoch)
        if ranges is None:
            ranges = self.ranges_of(epoch)
        known = ranges.exact.get
        for regions in op._regions:
            for region in regions:
                if known(region, self) is None:
                    continue
                there = ranges.peek(region)
                if not there:
                    ranges.note_untouched(region)
                for history in there:
                    # A combiner may change only histories of its own epoch.
                    if not (history.rest() if history.epoch == epoch else history.is_quiet):
                        return False
    return True


def _plan(
    op: Op,
    reads: list[History],
    writes: list[History],
    known: list[History],
    ranges: IntervalMap | None,
) -> JoinGate:
    """The gate of `op`, from the histories before it; `known` begins with the histories of the
    variables that it reads."""
    before, sources = predecessors(reads, writes) if reads or writes else ({}, {})
    if op.__class__ is Fence:
        for each in reversed(list(op._engine._registered)):
            if not each.finished:
                before[each] = None
                if isinstance(each, Fence):
                    # That fence comes after all ops planned before it.
                    break
    before.pop(op, None)
    if sources and (op._salvage is not None or any(map(_SALVAGE, sources))):
        origins = Origins.of(op, known[: len(op._reads)], ranges)
        return TracedGate(op, before, tuple(sources), origins)
    return JoinGate(op, before, tuple(sources)) if before or sources else OPEN


def _listen(before: Op, op: Op, gate: JoinGate) -> bool:
    """Make `gate` a listener of `before`; False if `before` need not be waited for."""
    node = before._node or nodes.of(before)
    # First the listener, then the look: the thread that ends or issues `before` does the reverse.
    if isinstance(before, DeviceOp) and _leaves_waits_to_the_driver(op):
        # Once it is issued, the driver can do the waiting.
        node.issue_listeners.append(gate)
        return not (before.finished or before._point is not None)
    node.listeners.append(gate)
    return not before.finished


def _leaves_waits_to_the_driver(op: Op) -> bool:
    return isinstance(op, DeviceOp) and not op._is_blocking
