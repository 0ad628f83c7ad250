"""Floor 3. Executables of the driver that can be changed in place, instead of making others.

An executable is lent to whoever launches it, as an object of its own. Every launch that is not yet
issued has that object; so once it is gone, no launch will ever be what it was, and what is enqueued
already stays as it was (cuGraphExecUpdate says so). Then it may become another of the same shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from cudasync.errors import CudaError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cudasync.driver.graph import Graph, GraphExec


class _Lent:
    """One executable: its shape, who keeps it, and who has it."""

    __slots__ = ("borrower", "executable", "shape")

    def __init__(self, shape: Hashable, executable: GraphExec) -> None:
        self.shape = shape
        self.executable = executable
        self.borrower: ref[GraphExec] | None = None

    def lend(self) -> GraphExec:
        made = self.executable.handed_on()
        self.borrower = ref(made)
        return made

    @property
    def is_back(self) -> bool:
        return self.borrower is None or self.borrower() is None


class Shelf:
    """What one recorded program has had instantiated. Any number of threads may ask at once."""

    def __init__(self) -> None:
        self._lent: list[_Lent] = []
        # How often something was instantiated, and how often changed instead.
        self.instantiated = self.changed = 0

    def executable(self, graph: Graph, shape: Hashable) -> tuple[GraphExec, bool]:
        """An executable of `graph`, which has this shape, or None where nothing may be changed to
        be it; True if something was."""
        found = None if shape is None else self._take(shape)
        if found is not None:
            try:
                found.executable.update(graph)
            except CudaError as error:
                if error.sticky:
                    raise
                # Alike, but not enough so for the driver.
                found.executable.close()
            else:
                self.changed += 1
                # Lent before it is seen there.
                lent = found.lend()
                self._lent.append(found)
                return lent, True
        made = graph.instantiate()
        self.instantiated += 1
        if shape is None:
            return made, False
        kept = _Lent(shape, made)
        lent = kept.lend()
        self._lent.append(kept)
        return lent, False

    def close(self) -> None:
        """Keep nothing: what is lent goes with who has it."""
        self._lent.clear()

    def _take(self, shape: Hashable) -> _Lent | None:
        for each in list(self._lent):
            if each.shape == shape and each.is_back:
                try:
                    # One of several threads has it.
                    self._lent.remove(each)
                except ValueError:
                    continue
                return each
        return None
