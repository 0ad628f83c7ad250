"""Cellar. A cache of bounded size, keyed by inputs: the oldest entry is dropped first.

Any number of threads may use a cache at once. There is no lock: each step is one C call. If two
threads make the same entry at once, both get one of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """At most `most` entries; for a moment, each adding thread may exceed this by one."""

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        """The entry made from `key`, if it is in the cache."""
        return self._kept.get(key)

    def add(self, key: K, made: V) -> V:
        """Store the entry made from `key`; return it, or the entry of a faster thread."""
        kept = self._kept
        made = kept.setdefault(key, made)
        excess = len(kept) - self._most
        if excess > 0:
            # A copy: other threads add and drop entries meanwhile.
            for each in list(kept)[:excess]:
                kept.pop(each, None)
        return made
