"""Floor 2. Device ops that are ready to be issued, and ops that end once others are over.

They gather here, and not where they became ready: each of a thousand in a row would be issued, or
ended, inside of the one before it. Whoever may have made one ready calls `settle`.
"""

from __future__ import annotations

from typing import Any

from cudasync.engine.device.completion import Ending

# A dict, so that an op stays in it until it is issued, and may be taken out twice.
# Fences, and ops that are not issued and end now that all before them are over, stand here, too.
READY: dict[Any, None] = {}


def settle() -> None:
    """Issue what is ready. Blocks for nobody."""
    while READY:
        for each in list(READY):
            if isinstance(each, Ending):
                each.end()
            else:
                each._pool.issue(each)
            READY.pop(each, None)
