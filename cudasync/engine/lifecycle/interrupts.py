"""Floor 2. Waits that Ctrl-C ended: notes the ops that ran then, and checks their end later.

An interrupted wait leaves the awaited ops running, since the program may go on. But a later wait
for everything, as in a clean-up, must not last for ever: it names the op that does not end.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from cudasync.driver.extensions.kernel_stop import note_interrupt
from cudasync.engine.lifecycle import shutdown
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.engine.device.issue import Issuer
    from cudasync.engine.engine import Engine


def note(engine: Engine) -> None:
    """Ctrl-C interrupted a wait on `engine`."""
    if engine._serial is not None:
        return
    issuer: Any = engine._issuer
    now = time.monotonic()
    earlier = issuer.interrupted
    flying = shutdown.in_flight(issuer)
    issuer.interrupted = {op: earlier.get(op, (now, t)) for op, t in flying}
    if flying:
        note_interrupt()


def wait_for_all(engine: Engine) -> None:
    """Wait for all ops pushed so far.

    Raises CudasyncError if an op that ran when Ctrl-C ended a wait still runs a second later.
    """
    issuer: Any = engine._issuer
    if engine._serial is not None or not issuer.interrupted:
        engine._drain(None)
        return
    shutdown.wait_looking(engine, lambda: _refuse_endless(issuer))
    issuer.interrupted = {}


def _refuse_endless(issuer: Issuer) -> bool:
    now = time.monotonic()
    for op, (since, timeline) in issuer.interrupted.items():
        if op.finished or now - since <= shutdown.GRACE_S:
            continue
        # It may be over, and nobody has asked: a wait asks for the last op of each stream.
        issuer.query(op)
        if not op.finished:
            raise CudasyncError(
                f"{shutdown.named(op)} still runs on {timeline.name} since Ctrl-C ended a wait, "
                f"and may never end: Device({timeline.device.ordinal}).reset() ends it if the "
                f"driver can, the end of the process always does"
            )
    return True
