"""Floor 5. Gradient compression: values of one or two bits, whose errors are sent later.

The scheme is MXNet's. The error of a value, its residual, is added to the next value of its place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync import xp
from cudasync.array.fused.function import Elementwise

if TYPE_CHECKING:
    from cudasync.array.array import Array
    from cudasync.kvstore.arguments import Key

TYPES = ("1bit", "2bit")


class Compression:
    """The compression of each key's arrays, with a residual for each place in its list.

    "2bit": `threshold`, minus it, or 0. "1bit": 1 above `threshold`, else -1. Infinities count like
    large numbers, and NaN as 0 or -1. They leave no residual, which would not be finite any more.
    """

    def __init__(self, kind: str, threshold: float = 0.5) -> None:
        if kind not in TYPES:
            raise ValueError(f"the compression type must be {' or '.join(TYPES)}, not {kind!r}")
        self.kind = kind
        is_number = isinstance(threshold, (int, float, np.integer, np.floating))
        self.threshold = bound = float(threshold) if is_number else math.nan
        if not math.isfinite(bound) or (kind == "2bit" and bound <= 0):
            raise ValueError(f"the threshold must be a finite number above 0, not {threshold!r}")
        self._residuals: dict[tuple[Key, int], Array] = {}

        def one_bit(x: Any) -> Any:
            return xp.where(x > bound, xp.astype(x > bound, x.dtype), -1.0)

        def two_bits(x: Any) -> Any:
            zero = xp.astype(x < x, x.dtype)  # Of the right dtype, and no NaN.
            return xp.where(x >= bound, bound, xp.where(x <= -bound, -bound, zero))

        def left(x: Any, sent: Any) -> Any:
            return xp.where(x - x == 0, x - sent, 0.0)

        self._sent = Elementwise(one_bit if kind == "1bit" else two_bits)
        self._left = Elementwise(left)

    @classmethod
    def of(cls, settings: Any) -> Compression:
        """The compression of `{"type": "1bit" or "2bit", "threshold": 0.5}`.

        ValueError and TypeError for other settings.
        """
        if not isinstance(settings, dict):
            kind = type(settings).__name__
            raise TypeError(
                f'compression takes a dict such as {{"type": "2bit", "threshold": 0.5}}, not {kind}'
            )
        unknown = sorted(map(str, set(settings) - {"type", "threshold"}))
        if unknown:
            raise TypeError(
                f"compression has no setting {', '.join(unknown)}: give type and threshold"
            )
        more = {name: value for name, value in settings.items() if name != "type"}
        return cls(settings.get("type", ""), **more)

    def __repr__(self) -> str:
        return f"compressed to {self.kind} by {self.threshold}"

    def __call__(self, key: Key, place: int, value: Array) -> Array:
        """The values to send for `value`, on its device; the residual stays there."""
        kept = self._residuals.get((key, place))
        if kept is None or kept.device != value.device:
            start = xp.zeros_like(value) if kept is None else kept.to_device(value.device)
            kept = self._residuals[key, place] = start
        xp.add(kept, value, out=kept)
        sent: Array = self._sent(kept)
        self._left(kept, sent, out=kept)
        return sent
