"""Floor 2. Observing engines for a while: installs a recorder, and removes it again.

Without a recorder, no engine pays for it. The log reports each push (`COMBINER.log.tell`); engines
report the fate of ops to `Ledger.recorder`, which they look at in any case. `observe` and `release`
wait for ops in flight: a recorder sees an op from its push to its end, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.lifecycle import fork_and_exit

if TYPE_CHECKING:
    from cudasync.engine.device.events import EventPool
    from cudasync.engine.engine import Engine


def observe(engine: Engine, recorder: Any, *, is_slow: bool = False) -> None:
    """Report the fate of later ops of `engine` to `recorder`; waits for the present ops.

    The issuer gets the class `recorder.marking(class)`, which may mark the start of ops. With
    `is_slow` launches of graphs take the long way, where their nodes can be timed.
    """
    if is_slow:
        engine._is_direct = False
    if engine._serial is None:
        # The present ops were not reported, and their events have no times.
        engine._drain(None)
        _set_timing(engine, True)
        issuer: Any = engine._issuer
        issuer.__class__ = recorder.marking(issuer.__class__)
    engine._ledger.recorder = recorder


def release(engine: Engine, before: Any) -> None:
    """Undo `observe`, once all pushed ops are over; `before` is the previous recorder."""
    if not engine._is_closed:
        engine._drain(None)
    engine._ledger.recorder = before
    if engine._serial is not None:
        return
    issuer: Any = engine._issuer
    # The class that the last `observe` found.
    issuer.__class__ = issuer.__class__.__base__
    if before is not None:
        return
    _set_timing(engine, False)
    if engine._max_in_flight is None:
        engine._is_direct = True
        if engine._is_closed:
            # Closed meanwhile, by another thread.
            engine._is_direct = False


def every_engine() -> list[Engine]:
    """The engines that are not closed."""
    return list(fork_and_exit.engines)


def _set_timing(engine: Engine, timing: bool) -> None:
    """From now on make events with times, or without; drop the free events."""
    issuer: Any = engine._issuer
    issuer._timing = timing
    for device in list(issuer.devices.values()):
        events: EventPool = device.events
        if events.timing != timing:
            events.renew(timing=timing)
