"""Floor 2. `READY`: device ops to be issued, and ops that end without being issued.

They are not issued or ended where they became ready: in a chain, each of a thousand would be
handled inside the previous one. A thread that may have made one ready calls `settle`.
"""

from __future__ import annotations

from typing import Any

from cudasync.engine.device.completion import Ending

# A dict, so that an op stays in it until it is issued, and may be removed twice. It also holds
# fences, and endings of ops after their last predecessor.
READY: dict[Any, None] = {}


def settle() -> None:
    """Issue and end everything that is ready. Waits for no thread."""
    while READY:
        for each in list(READY):
            if isinstance(each, Ending):
                each.end()
            else:
                each._pool.issue(each)
            READY.pop(each, None)
