"""Floor 2. Worker pools that an engine gets after it was made, for the floors above."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from cudasync.engine.host.pool import WorkerPool

if TYPE_CHECKING:
    from cudasync.engine.engine import Engine


def with_pool(engine: Engine, name: str, size: int, kind: type[WorkerPool] = WorkerPool) -> None:
    """See to it that the engine has a worker pool of this name; on a serial one it is no thread."""
    if name in engine._pools:
        return
    if engine._serial is not None:
        engine._pools.setdefault(name, engine._serial)
        return
    made = kind(name, size, engine._ledger, weakref.ref(engine))
    # Of several that ask at once one has the pool that stays; the others have started no thread.
    if engine._pools.setdefault(name, made) is made and not engine._is_plain:
        # Looked at now that it can be found: who ranks pools says so first, and finds them then.
        made.rank(lasts=engine._compute.is_ranked)
