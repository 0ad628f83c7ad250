"""Floor 2. Who watches engines for a while: a recorder is put in, and taken out again.

While nobody watches, no engine does anything for it: a recorder makes a push take the long way,
where it was looked for anyway (`Engine._is_plain`, `Ledger.recorder`). So `observe` and `release`
wait for what is in flight: an op is seen from its push to its end, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.lifecycle import fork_and_exit

if TYPE_CHECKING:
    from cudasync.engine.device.events import EventPool
    from cudasync.engine.engine import Engine


def observe(engine: Engine, recorder: Any, *, timing: bool = True) -> None:
    """Have `recorder` told of every op pushed to `engine` from here on; waits for the ops there
    are. Without `timing` events have no times, unless who watched before needs them."""
    engine._is_plain = engine._is_direct = False
    if engine._serial is None:
        for pool in dict.fromkeys(list(engine._pools.values())):
            # So that no worker runs ops as it plans them.
            pool.rank(lasts=False)
        # What is on its way was told to nobody, and its events have no times.
        engine._drain(None)
        if timing:
            _set_timing(engine, True)
    engine._ledger.recorder = recorder


def release(engine: Engine, before: Any) -> None:
    """Undo `observe`, once all is over that was pushed; `before` is who watched before it."""
    if not engine._is_closed:
        engine._drain(None)
    engine._ledger.recorder = before
    if engine._serial is not None:
        return
    if before is None or not before.times_devices:
        _set_timing(engine, False)
    if before is not None:
        return
    if engine._max_in_flight is None:
        pools = dict.fromkeys(list(engine._pools.values()))
        for pool in pools:
            pool.is_plain = True
        engine._is_plain = engine._is_direct = True
        if any(pool.is_ranked for pool in pools):
            # Looked at after the flags are set: another thread may rank at any moment.
            engine._rank()
        if engine._is_closed:
            # Closed meanwhile, by another thread.
            engine._is_plain = engine._is_direct = False


def every_engine() -> list[Engine]:
    """Those that are not closed."""
    return list(fork_and_exit.engines)


def _set_timing(engine: Engine, timing: bool) -> None:
    """From now on events are made with times, or without; those that are free are given up."""
    issuer: Any = engine._issuer
    issuer._timing = timing
    for device in list(issuer.devices.values()):
        events: EventPool = device.events
        if events.timing != timing:
            events.renew(timing=timing)
