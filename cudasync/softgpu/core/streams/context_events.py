"""Cellar. Events of whole contexts: records of all its work, and waits by all its later work.

Each verb is for a context, or for one green context of it. A wait also holds streams that are made
later: they begin behind the tail of a gate, a stream that no program sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.result_codes import INVALID_HANDLE, DriverFailure
from cudasync.softgpu.core.streams.commands import EventRecord, EventWait

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.green_contexts.contexts import GreenContext
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.dependency_tracking import Chains
    from cudasync.softgpu.core.streams.streams import Event


def record_context(
    machine: Machine, event: Event, context: Context, green: GreenContext | None = None
) -> None:
    """Let the event stand for all work so far of a context, or of its green context."""
    if event.context is not context:
        raise DriverFailure(INVALID_HANDLE, "the event belongs to another context")
    machine.captures.refuse_context(context, "a record of the context", green)
    tails = tails_of(machine.executor, context, green)
    record = EventRecord(machine.streams.beside(context))
    machine.executor.enqueue(record, tails)
    event.record, event.since_us, event.captured = record, 0.0, None


def hold_context(
    machine: Machine, context: Context, event: Event, green: GreenContext | None = None
) -> None:
    """Let all later work of a context, or of its green context, wait for the event."""
    machine.captures.refuse_context_wait(context, event, green)
    record = event.record
    if record is None or record.is_done:
        return
    gates = context.gates if green is None else green.gates
    if not gates:
        gates.append(machine.streams.beside(context))
    gate = gates[0]
    context.streams[gate] = None  # An empty gate is removed from the context.
    machine.executor.enqueue(EventWait(gate), (record,))
    for stream in list(context.streams) if green is None else green.streams:
        if stream is not gate:
            machine.executor.enqueue(EventWait(stream), (record,))


def tails_of(chains: Chains, context: Context, green: GreenContext | None) -> list[Command]:
    """The commands that must be done for a context, or its green context, to be idle."""
    if green is None:
        return chains.tails(context)
    tails = [chains.tail(stream) for stream in green.streams]
    return [tail for tail in tails if tail is not None]
