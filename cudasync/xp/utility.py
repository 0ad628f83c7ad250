"""Floor 4, the standard's namespace: utility functions. All return at once; NaN is true."""

from __future__ import annotations

import sys
from typing import Any

from cudasync.array.reductions.operation import array, reduced
from cudasync.xp.statistical import axes_given

_getframe = sys._getframe


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """True where all elements along the axes are true; true for none."""
    axes = axes_given(array(x, "all"), axis)
    return reduced("all", (x,), _getframe(1), axes=axes, keeps_dims=bool(keepdims), out=out)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """True where an element along the axes is true; false for none."""
    axes = axes_given(array(x, "any"), axis)
    return reduced("any", (x,), _getframe(1), axes=axes, keeps_dims=bool(keepdims), out=out)
