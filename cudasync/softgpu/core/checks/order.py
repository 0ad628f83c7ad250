"""Cellar. What comes before what, by vector clocks: streams, events, graphs, waits of the host.

A chain is a sequence of points each of which comes before the next. Commands are put on chains so
that there are no more of them than things that went on at once; the host is chain 0, and all its
threads are one, since how they wait for each other is not seen. A clock says for each chain how far
along it everything is known to come before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.streams.streams import NON_BLOCKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.streams.commands import Command

    Clock: TypeAlias = dict[int, int]

_HOST: Final = 0


class Stamp:
    """When something was done. `clock` covers what came before it, and itself."""

    __slots__ = ("behind", "chain", "clock", "count", "launch", "order", "site")

    def __init__(self, order: Order, site: str, clock: Clock) -> None:
        self.order = order
        self.site = site
        # Of a graph's node, whose site is where it was made: where the graph was launched.
        self.launch = ""
        self.clock = clock
        self.chain = _HOST
        self.count = 0
        # What must be done before, until this begins.
        self.behind: list[Stamp] = []

    def is_before(self, other: Stamp) -> bool:
        return other.clock.get(self.chain, 0) >= self.count


class Order:
    """The order of one program."""

    def __init__(self) -> None:
        self._host: Clock = {_HOST: 1}
        # How long each chain is.
        self._lengths: Clock = {_HOST: 1}
        # What the blocking streams of a context have done, those that are gone as well.
        self._blocking: dict[Context, Clock] = {}
        self._all: dict[Context, Clock] = {}

    # The host

    def host(self, site: str) -> Stamp:
        """The host does something now."""
        self._lengths[_HOST] += 1
        self._host = {**self._host, _HOST: self._lengths[_HOST]}
        stamp = Stamp(self, site, self._host)
        stamp.count = self._lengths[_HOST]
        return stamp

    def host_waited(self, commands: Iterable[Command]) -> None:
        """The host knows that these are done."""
        for command in commands:
            stamp = self.stamp_of(command)
            if stamp is not None and command.is_done:
                self._host = _joined(self._host, stamp.clock)

    def host_knows(self, stamp: Stamp) -> None:
        """The host may know that this is done."""
        self._host = _joined(self._host, stamp.clock)

    def host_waited_for_context(self, context: Context) -> None:
        """The host knows that all that the context was given is done."""
        self._host = _joined(self._host, self._all.get(context, {}))

    # Commands

    def enqueues(self, command: Command, waits: Iterable[Command], site: str) -> None:
        """A command is about to be enqueued, behind what streams and waits put before it."""
        stream = command.stream
        stamp = Stamp(self, site, self._host)
        tails = [stream.tail]
        if stream.is_legacy:
            blocking = [each for each in list(stream.context.streams) if _is_blocking(each.flags)]
            tails += [each.tail for each in blocking]
            stamp.clock = _joined(stamp.clock, self._blocking.get(stream.context, {}))
        elif _is_blocking(stream.flags):
            tails.append(stream.context.legacy.tail)
        for other in (*waits, *tails):
            before = self.stamp_of(other)
            if before is not None:
                stamp.behind.append(before)
        command.stamp = stamp

    def begins(self, command: Command) -> None:
        """All that the command waited for is done: it gets its place."""
        stamp = self.stamp_of(command)
        if stamp is None:
            stamp = command.stamp = Stamp(self, "unknown", self._host)
        if stamp.count:
            return  # It goes on.
        clock = stamp.clock
        behind = [*stamp.behind, *(each for c in command.awaited() if (each := self.stamp_of(c)))]
        for other in behind:
            clock = _joined(clock, other.clock)
        stamp.behind = []
        chain = self._chain(clock, [other.chain for other in behind])
        self._lengths[chain] = count = self._lengths.get(chain, 0) + 1
        stamp.chain, stamp.count, stamp.clock = chain, count, {**clock, chain: count}

    def joins(self, command: Command, others: Iterable[Stamp]) -> None:
        """The command saw what these have done: they come before it."""
        stamp = command.stamp
        for other in others:
            stamp.clock = _joined(stamp.clock, other.clock)

    def done(self, command: Command) -> None:
        """The command is done; its clock does not change any more."""
        stream = command.stream
        clock = command.stamp.clock
        self._all[stream.context] = _joined(self._all.get(stream.context, {}), clock)
        if _is_blocking(stream.flags):
            known = self._blocking.get(stream.context, {})
            self._blocking[stream.context] = _joined(known, clock)

    def stamp_of(self, command: Command | None) -> Stamp | None:
        """None for what was enqueued before the check began, and is done."""
        stamp: Stamp | None = getattr(command, "stamp", None)
        return stamp if stamp is not None and stamp.order is self else None

    def _chain(self, clock: Clock, near: Iterable[int]) -> int:
        """A chain whose end comes before; a new one if there is none."""
        lengths = self._lengths
        for chain in (*near, *lengths):
            if chain != _HOST and clock.get(chain, 0) == lengths[chain]:
                return chain
        return len(lengths)


def _is_blocking(flags: int) -> bool:
    return not flags & NON_BLOCKING


def _joined(left: Clock, right: Clock) -> Clock:
    """What either covers. Clocks are shared, and never changed in place."""
    more = {chain: n for chain, n in right.items() if left.get(chain, 0) < n}
    if not more:
        return left
    return {**left, **more}
