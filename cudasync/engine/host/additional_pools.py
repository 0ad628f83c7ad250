"""Floor 2. Worker pools that higher floors add to an existing engine."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from cudasync.engine.host.pool import WorkerPool

if TYPE_CHECKING:
    from cudasync.engine.engine import Engine


def with_pool(engine: Engine, name: str, size: int, kind: type[WorkerPool] = WorkerPool) -> None:
    """Give the engine a worker pool of this name, if it has none; on a serial one, no threads."""
    if name in engine._pools:
        return
    if engine._serial is not None:
        engine._pools.setdefault(name, engine._serial)
        return
    made = kind(name, size, engine._ledger, weakref.ref(engine))
    # Of concurrent callers one adds its pool; the other pools have started no thread.
    if engine._pools.setdefault(name, made) is made and not engine._is_plain:
        # Checked after the pool is visible: a thread that ranks pools first clears `_is_plain`.
        made.rank(lasts=engine._compute.is_ranked)
