"""Floor 4, the standard's namespace: differences of neighbours."""

from __future__ import annotations

import sys
from typing import Any

from cudasync.array.elementwise.operations import OPERATIONS
from cudasync.array.reductions.operation import array
from cudasync.xp.manipulation import concat
from cudasync.xp.parameter_checks import as_axis, whole

_getframe = sys._getframe


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Each element minus the one before it along an axis, repeated `n` times.

    `prepend` and `append` are joined to `x` first. Integers wrap. ValueError for a negative `n`,
    and for shapes that do not fit; TypeError for bool. Returns at once.
    """
    at = as_axis(axis, len(array(x, "diff").shape))
    times = whole(n, "a number of differences")
    if times < 0:
        raise ValueError(f"n of diff must be 0 or more, not {times}")
    if not times:
        return x
    parts = [each for each in (prepend, x, append) if each is not None]
    x = concat(parts, axis=at) if len(parts) > 1 else x
    before = (slice(None),) * at
    for _ in range(times):
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = OPERATIONS["subtract"]((later, earlier), _getframe(1))
    return x
