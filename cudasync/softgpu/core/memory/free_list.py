"""Cellar. The free list: sorted, disjoint address ranges, handed out by first fit."""

from __future__ import annotations

from bisect import bisect_left


class FreeRanges:
    """Disjoint ranges [start, end), sorted by address; adjacent ranges are joined."""

    __slots__ = ("_ends", "_starts", "size_bytes")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.size_bytes = 0

    def take(self, need: int) -> int | None:
        """Take `need` bytes and return their start; None if no range is large enough."""
        for index, start in enumerate(self._starts):
            end = self._ends[index]
            if end - start >= need:
                if end - start == need:
                    del self._starts[index], self._ends[index]
                else:
                    self._starts[index] = start + need
                self.size_bytes -= need
                return start
        return None

    def add(self, start: int, end: int) -> tuple[int, int]:
        """Add a free range; return the joined range that contains it."""
        self.size_bytes += end - start
        index = bisect_left(self._starts, start)
        joins_next = index < len(self._starts) and self._starts[index] == end
        joins_previous = index > 0 and self._ends[index - 1] == start
        if joins_next and joins_previous:
            self._ends[index - 1] = self._ends[index]
            del self._starts[index], self._ends[index]
        elif joins_next:
            self._starts[index] = start
        elif joins_previous:
            self._ends[index - 1] = end
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, end)
        index -= joins_previous
        return self._starts[index], self._ends[index]

    def take_last(self, size_bytes: int) -> list[tuple[int, int]]:
        """Take up to `size_bytes` bytes, from the highest addresses."""
        taken: list[tuple[int, int]] = []
        while size_bytes > 0 and self._starts:
            start, end = self._starts.pop(), self._ends.pop()
            if end - start > size_bytes:
                self._starts.append(start)
                self._ends.append(end - size_bytes)
                start = end - size_bytes
            taken.append((start, end))
            size_bytes -= end - start
            self.size_bytes -= end - start
        return taken
