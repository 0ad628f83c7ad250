"""Floor 4, the standard's namespace: utility functions. All return at once; NaN is true."""

from __future__ import annotations

import sys
from typing import Any

from cudasync.array.elementwise.operations import OPERATIONS
from cudasync.array.reductions.operation import array, reduced
from cudasync.xp.manipulation import concat
from cudasync.xp.statistical import axes_given

_getframe = sys._getframe


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """True where all elements along the axes are; true of none."""
    axes = axes_given(array(x, "all"), axis)
    return reduced("all", (x,), _getframe(1), axes=axes, keeps_dims=bool(keepdims))


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """What is between each element and the next along an axis, `n` times over.

    `prepend` and `append` are arrays that come before and after. TypeError for bool, ValueError for
    a negative `n`.
    """
    frame = _getframe(1)
    (at,) = axes_given(array(x, "diff"), axis)
    if n < 0:
        raise ValueError(f"diff is taken 0 times and more, not {n}")
    parts = [each for each in (prepend, x, append) if each is not None]
    if len(parts) > 1:
        x = concat(parts, axis=at)
    before = (slice(None),) * at
    for _ in range(n):
        x = OPERATIONS["subtract"]((x[*before, 1:], x[*before, :-1]), frame)
    return x


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """True where an element along the axes is; false of none."""
    axes = axes_given(array(x, "any"), axis)
    return reduced("any", (x,), _getframe(1), axes=axes, keeps_dims=bool(keepdims))
