"""Cellar, jit. Value numbering: reuses results that every path to the current line has computed.

LLVM would find out itself that two lines compute the same value, or that a register holds the value
just written to it. But reading a line costs LLVM more than leaving it out costs us. So a result is
reused wherever the block that computed it dominates the current block.

Dominators are found while the text grows. That requires labels that follow all branches to them,
such as labels made for one instruction (`Writer.fresh`). Any other label begins with no facts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T")

# The dominator height of a block for which nothing is known.
_NOTHING = -1
_TARGETS = re.compile(r"label %([^ ,\]]+)")


class Known(Generic[T]):
    """Facts by key, each with the block in which it was noted last.

    Blocks are numbered as they begin. The dominators of the current block form a stack: each block
    is directly above its immediate dominator.
    """

    def __init__(self) -> None:
        self._facts: dict[Hashable, tuple[T, int]] = {}
        self._count = 1
        self._dominators = [0]
        # The height of each block that is on the stack.
        self._heights = {0: 0}
        # By label, the height of the highest block that dominates all branches to it so far.
        self._ways: dict[str, int] = {}
        # Labels that follow all branches to them: not written yet, and written.
        self._forward: set[str] = set()
        self._behind: set[str] = set()

    def expect(self, label: str) -> None:
        """Announce a label that will be written once, behind all branches to it."""
        self._forward.add(label)

    def branch(self, line: str) -> None:
        """Process a line that ends a block."""
        here = len(self._dominators) - 1
        for label in _TARGETS.findall(line):
            assert label not in self._behind, f"a branch back to {label}"
            if label in self._forward:
                # An earlier branch is lower, or was lowered when this block began.
                self._ways.setdefault(label, here)

    def begin(self, label: str) -> None:
        """Begin a block."""
        height = self._ways.pop(label, _NOTHING)
        if label in self._forward:
            self._forward.remove(label)
            self._behind.add(label)
        self._keep(height + 1)
        self._heights[self._count] = len(self._dominators)
        self._dominators.append(self._count)
        self._count += 1

    def _keep(self, count: int) -> None:
        """Keep the lowest `count` dominators, and lower the heights of pending labels to match."""
        for block in self._dominators[count:]:
            del self._heights[block]
        del self._dominators[count:]
        for label, height in self._ways.items():
            if height >= count:
                self._ways[label] = count - 1

    def note(self, key: Hashable, fact: T) -> None:
        """Note a fact from here on; it replaces an earlier fact under this key."""
        self._facts[key] = fact, self._dominators[-1]

    def find(self, key: Hashable) -> T | None:
        """The fact under this key, if it is known here."""
        fact = self._facts.get(key)
        if fact is None or fact[1] not in self._heights:
            return None
        return fact[0]
