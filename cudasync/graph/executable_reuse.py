"""Floor 3. Executables of the driver that can be changed in place, instead of making new ones.

An executable is lent to its launchers through an object of its own. Every launch that is not yet
issued has that object. Once the object is gone, no launch needs the executable as it was, and
enqueued launches stay as they were (cuGraphExecUpdate guarantees this). Then it may become another
executable of the same shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from cudasync.errors import CudaError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cudasync.driver.graph import Graph, GraphExec


class _Lent:
    """One executable, its shape, and the object that its borrowers have."""

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
    """The executables of one recorded program. Any number of threads may ask at once."""

    def __init__(self) -> None:
        self._lent: list[_Lent] = []
        # The numbers of instantiations, and of changes instead.
        self.instantiated = self.changed = 0

    def executable(self, graph: Graph, shape: Hashable) -> tuple[GraphExec, bool]:
        """An executable of `graph`, and True if an existing one was changed for it. Only one of
        this shape may be changed; with the shape None, none may."""
        found = None if shape is None else self._take(shape)
        if found is not None:
            try:
                found.executable.update(graph)
            except CudaError as error:
                if error.sticky:
                    raise
                # The shape is equal, but the driver refuses the update.
                found.executable.close()
            else:
                self.changed += 1
                # Lent before it is visible to other threads.
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
        """Keep nothing: lent executables die with their borrowers."""
        self._lent.clear()

    def _take(self, shape: Hashable) -> _Lent | None:
        for each in list(self._lent):
            if each.shape == shape and each.is_back:
                try:
                    # remove() lets only one of several threads have it.
                    self._lent.remove(each)
                except ValueError:
                    continue
                return each
        return None
