"""Floor 2. Who watches engines for a while: a recorder is put in, and taken out again.

While nobody watches, no engine does anything for it. The log tells a watcher of each push
(`COMBINER.log.tell`); engines tell their recorder of what becomes of ops, where they looked for one
anyway (`Ledger.recorder`). `observe` and `release` wait for what is in flight: an op is seen from
its push to its end, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.lifecycle import fork_and_exit

if TYPE_CHECKING:
    from cudasync.engine.device.events import EventPool
    from cudasync.engine.engine import Engine


def observe(engine: Engine, recorder: Any, *, is_slow: bool = False) -> None:
    """Have `recorder` told of what becomes of the ops of `engine` from here on; waits for those
    there are. With `is_slow` launches of graphs go the long way, where their nodes can be timed."""
    if is_slow:
        engine._is_direct = False
    if engine._serial is None:
        # What is on its way was told to nobody, and its events have no times.
        engine._drain(None)
        _set_timing(engine, True)
    engine._ledger.recorder = recorder


def release(engine: Engine, before: Any) -> None:
    """Undo `observe`, once all is over that was pushed; `before` is who watched before it."""
    if not engine._is_closed:
        engine._drain(None)
    engine._ledger.recorder = before
    if engine._serial is not None or before is not None:
        return
    _set_timing(engine, False)
    if engine._max_in_flight is None:
        engine._is_direct = True
        if engine._is_closed:
            # Closed meanwhile, by another thread.
            engine._is_direct = False


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
