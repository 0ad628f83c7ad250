"""Cellar. What was made last, by what it was made from: so many things, and the oldest goes first.

Any number of threads may use one at once. There is no lock: each step is one C call, and two that
make the same at once have one of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """At most `most` things, and for a moment one more for each thread that adds one."""

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        """What was made from `key`, if it is remembered."""
        return self._kept.get(key)

    def add(self, key: K, made: V) -> V:
        """Remember what was made from `key`; it, or what another thread has made meanwhile."""
        kept = self._kept
        made = kept.setdefault(key, made)
        excess = len(kept) - self._most
        if excess > 0:
            # A copy: others add and drop meanwhile.
            for each in list(kept)[:excess]:
                kept.pop(each, None)
        return made
