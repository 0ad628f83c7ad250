"""Bugs to plant: each makes one decision of the engine wrong, and must be found.

`plant(name, put)` puts a wrong attribute in place by `put(owner, attribute, value)`: `setattr` in a
process of its own, `monkeypatch.setattr` in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import cudasync as cs
from cudasync.engine import issue, launching, worker
from cudasync.engine.op import DeviceOp, FullOp, PlainOp
from cudasync.engine.ranges import RangeMap
from cudasync.engine.state import State
from cudasync.engine.timeline import Timeline

_push = cs.Engine._push


def _is_meant(engine: cs.Engine, kwargs: dict[str, Any]) -> bool:
    """The serial engine stays as it is, and so does what arrays need for themselves."""
    return engine.mode != "serial" and kwargs["name"].startswith("step ")


def _without(word: str) -> Callable[..., cs.Op]:
    """A push that forgets what was said under `word`."""

    def push(self, fn, kind, **kwargs) -> cs.Op:
        return _push(self, fn, kind, **kwargs | ({word: ()} if _is_meant(self, kwargs) else {}))

    return push


def _first_elements(self, fn, kind, **kwargs) -> cs.Op:
    """A push that takes a view for its first element, as if its address were all of it."""

    def shortened(things: Iterable[Any]) -> list[Any]:
        sliced = (cs.Array, np.ndarray)
        return [thing[:1] if isinstance(thing, sliced) else thing for thing in things]

    if _is_meant(self, kwargs):
        kwargs |= {word: shortened(kwargs.get(word, ())) for word in ("reads", "writes")}
    return _push(self, fn, kind, **kwargs)


def _twice(self, fn, kind, **kwargs) -> cs.Op:
    """A push whose op runs twice now and then."""

    def again(*stream):
        fn(*stream)
        return fn(*stream)

    return _push(self, again if _is_meant(self, kwargs) else fn, kind, **kwargs)


def _slowly(self, fn, *, reads=(), writes=(), name=None, priority=0, device=None, pool=None):
    """A push that goes through `_push`, where the others are planted, whatever it is given."""
    return self._push_any(fn, reads, writes, name, priority, device, pool)


def _backwards(number: Any) -> property:
    """The number of an op with its sign turned round."""
    return property(lambda op: -number.__get__(op), lambda op, n: number.__set__(op, n))


def _without_reads(op: DeviceOp, ranges: RangeMap) -> launching.Found | None:
    """What a launch touches, but for what it only reads."""
    found = _states(op, ranges)
    return None if found is None else (found[0], [], found[2])


_states = launching._states
_DOOR = (cs.Engine, "push", _slowly)
_BUGS: dict[str, tuple[tuple[object, str, object], ...]] = {
    # At the door: whatever the engine is like inside.
    "reads are forgotten": ((cs.Engine, "_push", _without("reads")), _DOOR),
    "writes are forgotten": ((cs.Engine, "_push", _without("writes")), _DOOR),
    "a view counts as its first element": ((cs.Engine, "_push", _first_elements), _DOOR),
    "an op runs twice": ((cs.Engine, "_push", _twice), _DOOR),
    "numbers run backwards": (
        (PlainOp, "number", _backwards(PlainOp.number)),
        (FullOp, "number", _backwards(FullOp.number)),
    ),
    # Inside.
    "a launch forgets what it reads": ((launching, "_states", _without_reads),),
    "a launch is taken to be behind all streams": (
        (launching, "_is_behind", lambda timeline, before: True),
    ),
    "event waits are dropped": ((Timeline, "is_behind", lambda self, timeline, seq: True),),
    "readers are dropped": ((State, "add_reader", lambda self, op: None),),
    "writers are dropped": (
        (State, "overwrite", lambda self, op: None),
        (RangeMap, "write", lambda self, region, state: None),
    ),
    "poison is dropped": (
        (issue, "poison", lambda op: None),
        (worker, "poison", lambda op: None),
    ),
}
NAMES = tuple(_BUGS)


def plant(name: str, put: Callable[[object, str, object], None] = setattr) -> None:
    """Make the engine wrong in this way."""
    for owner, attribute, value in _BUGS[name]:
        put(owner, attribute, value)
