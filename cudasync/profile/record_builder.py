"""The tower. The work of a profile for each op, and the records that result from it.

An op takes the same path as without a profile. The append of the log (`Log.tell`) notes the time of
its push, before any thread can run the op. It wraps the function of a host op, which then reads the
clock before and after. For a device op the issuer reads the clock and marks the start on the stream
(`marking`). These only store times and references; `records()` makes names, lines and places of
them.
"""

from __future__ import annotations

import threading
import time
from threading import get_ident
from types import MethodType
from typing import TYPE_CHECKING, Any

from cudasync.engine import current
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import OpKind, site_of
from cudasync.engine.op_classes import DeviceOp, PlainOp
from cudasync.errors import CudasyncError
from cudasync.profile.clocks import DeviceClock
from cudasync.profile.record import VIRTUAL, WALL, NodeTime, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.atomic import Append
    from cudasync.engine.device.events import RingEvent
    from cudasync.engine.device.issue import Issuer
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.device.timeline import Timeline
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.op import Op

_now = time.perf_counter
_worker = current.worker
_NONE: tuple[Any, ...] = ((), (), ())


class Book:
    """The ops of one profile, on all engines."""

    def __init__(self) -> None:
        # When the profile began.
        self.wall = 0.0
        self.clocks: dict[int, DeviceClock] = {}
        # By op, the time of its push. Ops are removed when they end.
        self.queued: dict[Op, float] = {}
        # By device op, the time of its issue, and the event that marks its start, if it has one.
        self.issued: dict[Op, tuple[float, RingEvent | None]] = {}
        # By number of an allocation, its memory, which may be freed before the allocation is noted.
        self.allocated: dict[int, Region] = {}
        # Memory of dead arrays that the pool gave to new results, with the number of the next op.
        self.handed_on: list[tuple[int, Region]] = []
        # Ended ops, as arguments of `_record`.
        self.ended: list[tuple[Any, ...]] = []
        self.is_over = False
        # By device, the function that takes a free event of its ring, until the profile is over.
        self._take_of: dict[DeviceStreams, Callable[[], RingEvent]] = {}
        # The results of `marking`.
        self._marking: dict[type[Issuer], type[Issuer]] = {}

    def hand_on(self, region: Region) -> None:
        """The pool gives this memory to a new result."""
        self.handed_on.append((COMBINER.log.end, region))

    def noting(self, append: Append) -> Append:
        """`append` of a segment of the log, for ops of this profile.

        Each kind of function has one wrapper for all ops. A closure for each op would give the
        garbage collector an object for each of its variables.
        """
        queued, ended = self.queued, self.ended

        def plain_op(pushed_op: tuple[Any, Callable[[], Any]]) -> Any:
            op, fn = pushed_op
            begin = _now()
            result = fn()
            found = _now()
            pushed = queued.pop(op, None)
            if pushed is not None:
                worker = _worker()
                # The op itself is not kept, because it would keep its result alive.
                ended.append(
                    (op.number, op.name, op._code, op._at, pushed, op._reads, op._writes,
                     get_ident() if worker is None else worker.name, begin, found)
                )  # fmt: skip
            return result

        def host_op(pushed_op: tuple[Op, Callable[[], Any]]) -> Any:
            op, fn = pushed_op
            begin = _now()
            result = fn()
            worker = _worker()
            place = get_ident() if worker is None else worker.name
            self.end(op, place, begin, nodes=op.node_times or ())
            return result

        def note(op: Any) -> None:
            # Some entries are no ops. A device op's function stays as it is: see `marking`.
            kind = op.__class__
            if kind is PlainOp:
                op._fn = MethodType(plain_op, (op, op._fn))
                queued[op] = _now()
            elif kind is DeviceOp:
                queued[op] = _now()
            elif getattr(op, "_fn", None) is not None:
                # On a serial engine the op runs now, and the recorder notes its times.
                if op._engine._serial is None:
                    op._fn = MethodType(host_op, (op, op._fn))
                queued[op] = _now()
            append(op)

        return note

    def marking(self, issuers: type[Issuer]) -> type[Issuer]:
        """A class of issuers, based on `issuers`, that mark the start of each op of this profile.

        An issuer has this class during the profile, so that no op needs a function of its own, and
        no launch outside of the profile a look.
        """
        if issuers in self._marking:
            return self._marking[issuers]
        queued, issued, take_of = self.queued, self.issued, self._take_of
        enqueue = issuers.enqueue

        def marked(
            issuer: Issuer,
            op: DeviceOp,
            fn: Callable[..., Any],
            device: DeviceStreams,
            timeline: Timeline,
        ) -> BaseException | None:
            if op in queued:
                try:
                    try:
                        start = take_of[device]()
                    except LookupError:
                        start = self._free_event(device)
                    # The event marks the start of `op`, before its first command.
                    (timeline._stream or timeline.stream).record_reused(start)
                    issued[op] = _now(), start
                except CudasyncError:
                    # The op matters more than the profile: it has no times.
                    issued[op] = _now(), None
            return enqueue(issuer, op, fn, device, timeline)

        made: type[Issuer] = type(issuers.__name__, (issuers,), {"enqueue": marked})
        return self._marking.setdefault(issuers, made)

    def _free_event(self, device: DeviceStreams) -> RingEvent:
        """An event of a device that is new or has none free; ties the clock of a new device."""
        if device.device.ordinal not in self.clocks:
            self.join(device.device)
        if not self.is_over:
            self._take_of[device] = device.events.take_free
        return device.events.take()

    def close(self) -> None:
        """End the profile, after all ops, and release the devices."""
        self.is_over = True
        self._take_of.clear()
        self._marking.clear()
        for clock in self.clocks.values():
            clock.close()

    def join(self, device: Any) -> None:
        """Tie the clock of a device that was not used before."""
        clock = DeviceClock(device, self.wall)
        known = [each for each in self.clocks.values() if each.is_virtual]
        if clock.is_virtual and known:
            clock.shift_us = known[0].axis_us(known[0].tie().device_us) - clock.ties[-1].device_us
        self.clocks.setdefault(device.ordinal, clock)

    def end(
        self, op: Any, place: str | int | None, issued: float | None, begin: Any = None,
        end: Any = None, nodes: Any = (),
    ) -> None:  # fmt: skip
        """Note that `op` ended now; the first note counts.

        `place` is a worker or stream, a thread by its number, or None for an op that did not run;
        `begin` and `end` are times of its device's clock.
        """
        queued = self.queued.pop(op, None)
        if queued is None:
            return
        self.ended.append(
            (op.number, op.name, op._code, op._at, queued, op._reads, op._writes, place, issued,
             _now(), op.kind, op._regions, *_home(op),
             begin, end, nodes)
        )  # fmt: skip

    def records(self) -> list[Record]:
        """All pushed ops, in the order of pushes. Ops whose end was not reported have no times."""
        for op in list(self.queued):
            self.end(op, None, None)
        names = {each.ident: each.name for each in threading.enumerate()}
        made = [self._record(names, *each) for each in self.ended]
        return sorted(made, key=lambda record: record.number)

    def _record(
        self, names: dict[int | None, str], number: int, name: str, code: Any, at: int,
        queued: float, reads: Any, writes: Any, where: str | int | None, issued: float | None,
        found: float, kind: OpKind = OpKind.HOST, regions: Any = None, kernel: Any = "",
        ordinal: int | None = None, pool: str = "compute", begin: float | None = None,
        end: float | None = None, nodes: Any = (),
    ) -> Record:  # fmt: skip
        # A number is the thread that pushed the op and ran it at once; this thread may be gone.
        place = names.get(where, f"thread {where}") if isinstance(where, int) else where
        only_read, updated, written = regions or _NONE
        adopted = (self.allocated[number],) if number in self.allocated else ()
        made = Record(number, name, kind.value, site_of(code, at), self._us(queued), ordinal, pool)
        made.place, made.has_failed = place, place is None
        made.reads = (*only_read, *updated, *reads)
        made.writes = (*updated, *written, *writes, *adopted)
        made.nodes = () if isinstance(kernel, str) else tuple(str(each) for each in kernel)
        sizes = [_size(updated) + _size(written), _size(only_read)]
        made.size_bytes = min(filter(None, sizes), default=0) if made.is_copy else _size(adopted)
        if issued is None:
            return made
        made.issued_us, made.found_us = self._us(issued), self._us(found)
        if begin is not None and end is not None and ordinal is not None:
            clock = self.clocks[ordinal]
            made.clock = VIRTUAL if clock.is_virtual else WALL
            made.start_us, made.end_us = clock.axis_us(begin), clock.axis_us(end)
            made.node_times = _node_times(nodes, clock.axis_us)
        elif begin is None and (ordinal is None or place == "serial"):
            made.start_us, made.end_us = made.issued_us, made.found_us
            made.node_times = _node_times(nodes, self._us)
            made.nodes = made.nodes or tuple(each.name for each in made.node_times)
        return made

    def _us(self, moment: float) -> float:
        return (moment - self.wall) * 1e6


def _node_times(nodes: Any, us: Callable[[float], float]) -> tuple[NodeTime, ...]:
    return tuple(
        NodeTime(node.name, node.push_site, us(begin), us(end)) for node, begin, end in nodes
    )


def _home(op: Op) -> tuple[Any, int | None, str]:
    """The kernels of a device op, the ordinal of its device, and the pool of a host op."""
    if isinstance(op, DeviceOp):
        return op._kernel, op._device.ordinal, ""
    return "", None, str(getattr(op._pool, "name", "compute"))


def _size(regions: Any) -> int:
    return sum(each.end - each.start for each in regions)
