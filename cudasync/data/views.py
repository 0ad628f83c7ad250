"""Floor 4. Sequences by index that copy nothing, for stages whose samples all have a number.

A view has a length, and `view[i]` is sample i. Any thread may ask, in any order.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cudasync.data.failures import Origin
from cudasync.data.trees import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class View(Protocol):
    """Samples by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def origin(view: View, index: int) -> Origin:
    """The item of the source that is `view[index]`. It fetches nothing but from lists."""
    if isinstance(view, Ranged | Permuted | Joined | Zipped):
        return view.origin(index)
    return Origin(index, shown(view[index]) if type(view) in (list, tuple) else None)


class Ranged:
    """Every `step`-th sample from `start` to before `stop`."""

    def __init__(self, view: View, start: int, stop: int, step: int = 1) -> None:
        self._view, self._range = view, range(start, max(start, min(stop, len(view))), step)

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, index: int) -> Any:
        return self._view[self._range[index]]

    def origin(self, index: int) -> Origin:
        return origin(self._view, self._range[index])


class Permuted:
    """The samples in an order that a seed and the epoch decide."""

    def __init__(self, view: View, key: Sequence[int]) -> None:
        self._view = view
        self._order = np.random.default_rng(list(key)).permutation(len(view))

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> Any:
        return self._view[int(self._order[index])]

    def origin(self, index: int) -> Origin:
        return origin(self._view, int(self._order[index]))


class Joined:
    """One view behind the other."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views
        self._starts = [0, *accumulate(map(len, views))]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> Any:
        at = bisect_right(self._starts, index) - 1
        return self._views[at][index - self._starts[at]]

    def origin(self, index: int) -> Origin:
        at = bisect_right(self._starts, index) - 1
        there = origin(self._views[at], index - self._starts[at])
        return Origin((at, there.index), there.text)


class Zipped:
    """Tuples of the samples with one number; as many as in the shortest view."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views

    def __len__(self) -> int:
        return min(map(len, self._views), default=0)

    def __getitem__(self, index: int) -> Any:
        return tuple(view[index] for view in self._views)

    def origin(self, index: int) -> Origin:
        return together(origin(each, index) for each in self._views)


def together(origins: Iterable[Origin]) -> Origin:
    """The origin of a tuple with an item of each."""
    indices, texts = zip(*origins, strict=True)
    known = [each for each in texts if each is not None]
    return Origin(None if None in indices else indices, ", ".join(known) or None)
