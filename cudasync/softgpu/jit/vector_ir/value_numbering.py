"""Cellar, jit. What is known where a line is written: what every way to it has computed.

LLVM would find out itself that two lines compute the same, or that a register holds what was just
written to it, but each line costs it more than it costs us not to write it. So a result is used
again wherever the block that computed it dominates the one being written.

Dominators are found while the text grows. That takes labels whose branches all come before them,
which is so for those that are made up for one instruction (`Writer.fresh`); any other label begins
with nothing known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T")

# The height of what dominates a block of which nothing is known.
_NOTHING = -1
_TARGETS = re.compile(r"label %([^ ,\]]+)")


class Known(Generic[T]):
    """Facts by key, each from the block in which it was noted last.

    Blocks are numbered as they begin. Those that dominate the one being written are a stack: a
    block is above the one that dominates it last.
    """

    def __init__(self) -> None:
        self._facts: dict[Hashable, tuple[T, int]] = {}
        self._count = 1
        self._dominators = [0]
        # Where a block is on the stack, while it is.
        self._heights = {0: 0}
        # By label, the height of the highest block that dominates all branches to it so far.
        self._ways: dict[str, int] = {}
        # The labels that every branch comes before, and those of them that were written.
        self._forward: set[str] = set()
        self._behind: set[str] = set()

    def expect(self, label: str) -> None:
        """A label that will be written once, behind all branches to it."""
        self._forward.add(label)

    def branch(self, line: str) -> None:
        """A line that ends a block."""
        here = len(self._dominators) - 1
        for label in _TARGETS.findall(line):
            assert label not in self._behind, f"a branch back to {label}"
            if label in self._forward:
                # Who came before is lower, or was made so when this block began.
                self._ways.setdefault(label, here)

    def begin(self, label: str) -> None:
        """A block begins."""
        height = self._ways.pop(label, _NOTHING)
        if label in self._forward:
            self._forward.remove(label)
            self._behind.add(label)
        self._keep(height + 1)
        self._heights[self._count] = len(self._dominators)
        self._dominators.append(self._count)
        self._count += 1

    def _keep(self, count: int) -> None:
        """Go back to so many dominators; labels that others led to know less, too."""
        for block in self._dominators[count:]:
            del self._heights[block]
        del self._dominators[count:]
        for label, height in self._ways.items():
            if height >= count:
                self._ways[label] = count - 1

    def note(self, key: Hashable, fact: T) -> None:
        """From here on this is so; what was noted under this key before is so no more."""
        self._facts[key] = fact, self._dominators[-1]

    def find(self, key: Hashable) -> T | None:
        """What is so by this key, if it is known."""
        fact = self._facts.get(key)
        if fact is None or fact[1] not in self._heights:
            return None
        return fact[0]
