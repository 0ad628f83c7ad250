"""Floor 2. The regular end of an engine: waits for its ops, then ends its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.lifecycle import fork_and_exit
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.log.entries import Close
from cudasync.engine.replay.sequence import drop_all_of

if TYPE_CHECKING:
    from cudasync.engine.device.issue import Issuer
    from cudasync.engine.engine import Engine
    from cudasync.engine.host.pool import WorkerPool


def end(engine: Engine) -> None:
    """`Engine.close` without a report of failures."""
    if engine._is_ended:
        return
    engine._drain(None)
    engine._is_closed = True
    engine._is_plain = engine._is_direct = False
    # Ops in the log before this are waited for; later ops are refused.
    COMBINER.log.append(Close(engine))
    COMBINER.plan()
    engine._drain(None)
    for pool in dict.fromkeys(list(engine._pools.values())):
        pool.close()
    if engine._serial is None:
        engine._issuer.close()
    nodes.tell_for_others(engine)
    drop_all_of(engine)
    engine._is_ended = True
    fork_and_exit.engines.discard(engine)


def dismiss(pools: dict[str, WorkerPool], issuer: Issuer) -> None:
    """The engine is gone, and so are its ops: let its threads end. Runs in a finaliser."""
    for pool in list(pools.values()):
        pool.dismiss()
    issuer.dismiss()
