"""Bugs to plant: each makes one decision of the engine wrong, and the tests must find it.

`plant(name, put)` installs a wrong attribute by `put(owner, attribute, value)`: `setattr` in its
own process, `monkeypatch.setattr` in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import cudasync as cs
from cudasync.array.elementwise import plan
from cudasync.array.host import plan as host_plan
from cudasync.array.steps import on_host, step
from cudasync.driver.kernels.launch_sequences import LaunchSequence
from cudasync.engine.batch import host
from cudasync.engine.batch.union import Union
from cudasync.engine.device import completion, device_push, in_doubt, issue, stream_affinity
from cudasync.engine.device.stream_group import StreamGroup
from cudasync.engine.device.timeline import Timeline
from cudasync.engine.hazards.byte_ranges import Cover
from cudasync.engine.hazards.history import History
from cudasync.engine.hazards.interval_map import IntervalMap, Region
from cudasync.engine.host import inline_execution, worker
from cudasync.engine.log import histories
from cudasync.engine.op_classes import DeviceOp, FullOp, PlainOp

_push = cs.Engine._push


def _is_meant(engine: cs.Engine, kwargs: dict[str, Any]) -> bool:
    """Whether to break this push: not on the serial engine, and not for an array's internal ops."""
    return engine.mode != "serial" and kwargs["name"].startswith("step ")


def _without(word: str) -> Callable[..., cs.Op]:
    """A push that drops its argument `word`."""

    def push(self, fn, kind, **kwargs) -> cs.Op:
        return _push(self, fn, kind, **kwargs | ({word: ()} if _is_meant(self, kwargs) else {}))

    return push


def _first_elements(self, fn, kind, **kwargs) -> cs.Op:
    """A push that takes a view for its first element, as if its address were the whole view."""

    def shortened(things: Iterable[Any]) -> list[Any]:
        sliced = (cs.Array, np.ndarray)
        return [thing[:1] if isinstance(thing, sliced) else thing for thing in things]

    if _is_meant(self, kwargs):
        kwargs |= {word: shortened(kwargs.get(word, ())) for word in ("reads", "writes")}
    return _push(self, fn, kind, **kwargs)


def _twice(self, fn, kind, **kwargs) -> cs.Op:
    """A push that makes the op run its function twice."""

    def again(*stream):
        fn(*stream)
        return fn(*stream)

    return _push(self, again if _is_meant(self, kwargs) else fn, kind, **kwargs)


def _slowly(self, fn, *, reads=(), writes=(), name=None, priority=0, device=None, pool=None):
    """A push that always goes through `_push`, where the other bugs are planted."""
    return self._push_any(fn, reads, writes, name, priority, device, pool)


def _backwards(number: Any) -> property:
    """The number of an op with the opposite sign."""
    return property(lambda op: -number.__get__(op), lambda op, n: number.__set__(op, n))


def _without_reads(op: DeviceOp, ranges: IntervalMap) -> histories.Found | None:
    """The accesses of a launch, without those that only read."""
    found = _find(op, ranges)
    if found is None:
        return None
    exact, _, writes, updated = found
    return exact, [], writes, updated


def _first_of_all(self, accesses: Any) -> None:
    """A union that counts only its first accesses."""
    if not (self._read or self._written or self._variables_read or self._variables_written):
        _add(self, accesses)


def _call_all(batch: tuple[Iterable[tuple[Any, ...]], Any]) -> list[Any]:
    """A batch that calls the steps behind a failed step too, and then fails."""
    steps, op = batch
    results: list[Any] = []
    errors = []
    for fn, *_ in steps:
        try:
            results.append(fn())
        except Exception as error:
            op._step = f"step {len(results)} (counted)"
            errors.append(error)
    if errors:
        raise errors[0]
    return results


def _operator_without(module: Any, word: int) -> Callable[..., cs.Op]:
    """A push of a generated kernel that drops its reads (0) or its writes (2)."""
    push = module._push

    def forget(engine, fn, accesses, *rest) -> cs.Op:
        (only_read, updated, written), *others = accesses
        # An update reads too.
        kept = ((), (), (*updated, *written)) if word == 0 else ((*only_read, *updated), (), ())
        return push(engine, fn, (kept, *others), *rest)

    return forget


def _host_plan_without(module: Any, word: str) -> Callable[[], Any]:
    """A stand-in for a CPU plan's engine. Pushes to it drop the argument `word`."""
    current_engine = module.current_engine

    class Forgetful:
        _is_direct, _most_at_once = False, -1

        def _push(self, fn, kind, **kwargs) -> cs.Op:
            engine = current_engine()
            forgotten = {} if engine.mode == "serial" else {word: ()}
            return engine._push(fn, kind, **kwargs | forgotten)

    return Forgetful


def _short_op_without(word: str) -> Callable[..., cs.Op]:
    """A push of a short op on the CPU that drops its reads or its writes."""
    push = inline_execution.push

    def forget(engine, fn, regions, *rest) -> cs.Op:
        only_read, updated, written = regions
        kept = ((), (), (*updated, *written)) if word == "reads" else (only_read, (), ())
        return push(engine, fn, kept, *rest)

    return forget


def _behind_all(group: StreamGroup) -> Timeline:
    """A new stream whose clock says that it waits for all that is under way."""
    made = _fresh(group)
    made.clock = {each: each.issued for each in group.streams.timelines}
    return made


_fresh = StreamGroup.fresh
_add = Union.add
_find = histories.find
_DOOR = (cs.Engine, "push", _slowly)
_BUGS: dict[str, tuple[tuple[object, str, object], ...]] = {
    # In the public interface, whatever the engine is like inside.
    "reads are forgotten": ((cs.Engine, "_push", _without("reads")), _DOOR),
    "writes are forgotten": ((cs.Engine, "_push", _without("writes")), _DOOR),
    "a view counts as its first element": ((cs.Engine, "_push", _first_elements), _DOOR),
    "an op runs twice": ((cs.Engine, "_push", _twice), _DOOR),
    "numbers run backwards": (
        (PlainOp, "number", _backwards(PlainOp.number)),
        (FullOp, "number", _backwards(FullOp.number)),
    ),
    # Inside the engine.
    "a launch forgets what it reads": ((histories, "find", _without_reads),),
    "a launch is taken to be behind all streams": (
        (stream_affinity, "_is_behind", lambda timeline, before: True),
        (device_push, "beside", lambda point, before, group: group.choose(before)),
    ),
    "a new stream is taken to be behind all streams": ((StreamGroup, "fresh", _behind_all),),
    "a batch is taken for its first step": ((Union, "add", _first_of_all),),
    "a batch needs what it writes itself": (
        (Cover, "without", lambda self, region: [Region(*region)]),
    ),
    "a batch is taken for the last one": ((LaunchSequence, "is_of", lambda self, launches: True),),
    "a batch goes on where a step failed": ((host, "call_each", _call_all),),
    "event waits are dropped": ((Timeline, "is_behind", lambda self, timeline, seq: True),),
    "readers are dropped": ((History, "add_reader", lambda self, op: None),),
    "writers are dropped": (
        (History, "overwrite", lambda self, op: None),
        (IntervalMap, "write", lambda self, region, state: None),
    ),
    "poison is dropped": (
        (issue, "poison", lambda *_: None),
        (worker, "poison", lambda *_: None),
    ),
}
NAMES = tuple(_BUGS)

# Declarations of operators: only programs with operators show these bugs.
_BUGS |= {
    "an operator forgets what it reads": ((plan, "_push", _operator_without(plan, 0)),),
    "an operator forgets what it writes": ((plan, "_push", _operator_without(plan, 2)),),
    "a step forgets what it reads": ((step, "_push", _operator_without(step, 0)),),
    "a step forgets what it writes": ((step, "_push", _operator_without(step, 2)),),
    "an operator on the CPU forgets what it reads": (
        (host_plan, "current_engine", _host_plan_without(host_plan, "reads")),
    ),
    "an operator on the CPU forgets what it writes": (
        (host_plan, "current_engine", _host_plan_without(host_plan, "writes")),
    ),
    "a short op on the CPU forgets what it reads": (
        (inline_execution, "push", _short_op_without("reads")),
    ),
    "a short op on the CPU forgets what it writes": (
        (inline_execution, "push", _short_op_without("writes")),
    ),
    "a short op on the CPU is always clear": (
        (inline_execution, "is_clear", lambda op, epoch: True),
    ),
    "a step on the CPU forgets what it reads": (
        (on_host, "current_engine", _host_plan_without(on_host, "reads")),
    ),
    "a step on the CPU forgets what it writes": (
        (on_host, "current_engine", _host_plan_without(on_host, "writes")),
    ),
}
OPERATORS = tuple(name for name in _BUGS if name not in NAMES)


def _fails_by_all(op: DeviceOp, before: Any, sources: Any, streams: Any) -> None:
    """A doubt that blames all predecessors of an op."""
    _begin(op, before, tuple(before), streams)


_begin = in_doubt.begin
# These bugs need a lost device.
_BUGS |= {
    "a fault stays on its device": ((in_doubt, "begin", lambda *_: None),),
    "what is read from a lost device is taken for good": ((completion, "poison", lambda *_: None),),
    "a lost device takes what is overwritten with it": ((in_doubt, "begin", _fails_by_all),),
}
FAULTS = tuple(name for name in _BUGS if name not in NAMES + OPERATORS)

_UPDATE = "d=0 h=1 t=1: mix d0[0:24] d0[0:24] 1"
_TOTAL = "d=1 h=1 t=1: total d0[18:19] d0[0:1]"
# Programs that are known to show a bug, as `program_text` writes them.
SHOWN_BY = {
    "reads are forgotten": "d=1 h=1 t=1: batch { mix d0[12:24] d0[0:12] 2 }; fetch d0[1:13]",
    "writes are forgotten": (
        "d=0,0 h=1 t=1: mix d1[0::2] d0[2:14] 9; copy d1[16:17] h0[8:9]; mix h0[5:19] h0[5:19] 4; "
        "batch { clear d0[4:9]; set d0[0::2] 74 } !2"
    ),
    "a view counts as its first element": "d=0 h=1 t=1: exhaust d0[9:17] no; fetch d0[0:17]",
    "an op runs twice": _UPDATE,
    "numbers run backwards": "d=1 h=1 t=1: direct h0[0:2] d0[4:6] !1 ~; fail h0[4:12] no no",
    "a launch forgets what it reads": (
        "d=1,1 h=1 t=1: fail d0[1:19] no no; add d1[14:20] d0[18:7:-2]"
    ),
    "a launch is taken to be behind all streams": _UPDATE,
    "a new stream is taken to be behind all streams": _UPDATE,
    "a batch is taken for its first step": (
        "d=1 h=2 t=1: batch { join h1[11:24:5] h0[11:14] h0[3:12]; note t0 yes }"
    ),
    # What is read is a part of what was written.
    "a batch needs what it writes itself": (
        "d=0 h=1 t=1: fail h0[0:24] no no; batch { set h0[0:24] 4; mix h0[4:20] h0[4:20] 1 }"
    ),
    "a batch is taken for the last one": (
        "d=0 h=1 t=1: batch { mix d0[0:24] d0[0:24] 3 }; "
        "batch { mix d0[0:24] d0[0:24] 3; mix d0[0:24] d0[0:24] 5 }"
    ),
    "a batch goes on where a step failed": (
        "d=1 h=1 t=1: batch { note t0 no; fail h0[4:18] no no; note t0 yes }"
    ),
    "event waits are dropped": _UPDATE,
    "readers are dropped": (
        "streams=5 workers=3 d=0,0 h=1 t=1: hold h0[2:18] 96 !-2 ~; copy d1[16:17] h0[8:9]; "
        "wait t0; mix h0[5:19] h0[5:19] 4; hold h0[10:18] 44 !-2"
    ),
    "writers are dropped": _UPDATE,
    "poison is dropped": "d=1 h=1 t=1: fail d0[1:19] no no; batch { mix d0[12:24] d0[0:12] 2 }",
    "an operator forgets what it reads": _TOTAL,
    "an operator forgets what it writes": ("d=2 h=1 t=1: add d0[0:24] d0[0:24]; read d0[22:24]"),
    "a step forgets what it writes": _TOTAL,
    "a short op on the CPU forgets what it reads": (
        "workers=2 at_once=1 d=1 h=3 t=1: inner h2[11:24:5] h2[5:11] h2[5:11]"
    ),
    "a short op on the CPU forgets what it writes": (
        "d=0 h=3 t=1: hold h2[6:20] 71 !-2; mix h1[23::-1] h2[0:24] 9; total h2[0::2] h2[0::2]"
    ),
}


def plant(name: str, put: Callable[[object, str, object], None] = setattr) -> None:
    """Plant the bug of this name in the engine."""
    for owner, attribute, value in _BUGS[name]:
        put(owner, attribute, value)
