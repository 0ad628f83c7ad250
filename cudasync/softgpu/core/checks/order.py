"""Cellar. The happens-before order, by vector clocks: streams, events, graphs, host waits.

A chain is a sequence of points, each of which comes before the next. Commands are put on chains so
that there are no more chains than concurrent activities. The host is chain 0; all its threads are
one, because their waits for each other are not seen. A clock gives, for each chain, the position up
to which everything comes before.
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
    """The time of an action. `clock` covers everything before it, and the action itself."""

    __slots__ = ("behind", "chain", "clock", "count", "launch", "order", "site")

    def __init__(self, order: Order, site: str, clock: Clock) -> None:
        self.order = order
        self.site = site
        # For a graph's node: the line of the launch; `site` is then the line that made the node.
        self.launch = ""
        self.clock = clock
        self.chain = _HOST
        self.count = 0
        # The stamps that come before it; cleared when the command begins.
        self.behind: list[Stamp] = []

    def is_before(self, other: Stamp) -> bool:
        return other.clock.get(self.chain, 0) >= self.count


class Order:
    """The order of one program."""

    def __init__(self) -> None:
        self._host: Clock = {_HOST: 1}
        # The length of each chain.
        self._lengths: Clock = {_HOST: 1}
        # The joined clocks of a context's blocking streams, also of destroyed ones.
        self._blocking: dict[Context, Clock] = {}
        self._all: dict[Context, Clock] = {}

    # The host

    def host(self, site: str) -> Stamp:
        """The stamp of an action of the host now."""
        self._lengths[_HOST] += 1
        self._host = {**self._host, _HOST: self._lengths[_HOST]}
        stamp = Stamp(self, site, self._host)
        stamp.count = self._lengths[_HOST]
        return stamp

    def host_waited(self, commands: Iterable[Command]) -> None:
        """The host has waited for these commands."""
        for command in commands:
            stamp = self.stamp_of(command)
            if stamp is not None and command.is_done:
                self._host = _joined(self._host, stamp.clock)

    def host_knows(self, stamp: Stamp) -> None:
        """The host may have learnt that this is done."""
        self._host = _joined(self._host, stamp.clock)

    def host_waited_for_context(self, context: Context) -> None:
        """The host has waited for all work of a context."""
        self._host = _joined(self._host, self._all.get(context, {}))

    # Commands

    def enqueues(self, command: Command, waits: Iterable[Command], site: str) -> None:
        """Note a command that is about to be enqueued, with its streams' tails and its waits."""
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
        """All dependencies of a command are done: give it its place on a chain."""
        stamp = self.stamp_of(command)
        if stamp is None:
            stamp = command.stamp = Stamp(self, "unknown", self._host)
        if stamp.count:
            return  # It began before and goes on.
        clock = stamp.clock
        behind = [*stamp.behind, *(each for c in command.awaited() if (each := self.stamp_of(c)))]
        for other in behind:
            clock = _joined(clock, other.clock)
        stamp.behind = []
        chain = self._chain(clock, [other.chain for other in behind])
        self._lengths[chain] = count = self._lengths.get(chain, 0) + 1
        stamp.chain, stamp.count, stamp.clock = chain, count, {**clock, chain: count}

    def joins(self, command: Command, others: Iterable[Stamp]) -> None:
        """The command has seen the effects of these, so they come before it."""
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
        """The stamp of a command; None if the command was done before the check began."""
        stamp: Stamp | None = getattr(command, "stamp", None)
        return stamp if stamp is not None and stamp.order is self else None

    def _chain(self, clock: Clock, near: Iterable[int]) -> int:
        """A chain with an end before this clock; a new chain if there is none."""
        lengths = self._lengths
        for chain in (*near, *lengths):
            if chain != _HOST and clock.get(chain, 0) == lengths[chain]:
                return chain
        return len(lengths)


def _is_blocking(flags: int) -> bool:
    return not flags & NON_BLOCKING


def _joined(left: Clock, right: Clock) -> Clock:
    """The join of two clocks. Clocks are shared, and never changed in place."""
    more = {chain: n for chain, n in right.items() if left.get(chain, 0) < n}
    if not more:
        return left
    return {**left, **more}
