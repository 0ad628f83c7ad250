"""Floor 3. The nodes of a launch that may have caused a fault of its device.

A launch of many nodes is one driver call, and a fault is reported later. If the report names a
kernel, the candidates are the nodes that launch it. If the report has the node's number, too, as
the software GPU's does, that node is the only candidate. Otherwise any node may be.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from cudasync.engine.batch.failed_step import Steps, tells_of
from cudasync.graph.node import NodeSite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cudasync.engine.op import Salvage
    from cudasync.errors import CudaError
    from cudasync.graph.node import Node

# A message names this many candidates, and counts the others.
_MOST = 8
# The software GPU's words about a kernel that a graph launched.
_NUMBER = re.compile(r", node (\d+) of its graph\b")


class Candidates(Steps):
    """The kernels of a launch, with what is to be said of their nodes.

    `ends` has, for each node, the number of nodes of the driver's graph up to and including it. The
    last op that wrote some data has this for as long as the data: it refers to no array.
    """

    # A tuple cannot have slots.
    _nodes: tuple[NodeSite, ...]
    _inside: tuple[NodeSite, ...]
    _ends: tuple[int, ...]

    @classmethod
    def of(
        cls, nodes: Sequence[Node], ends: Sequence[int] = (), salvage: Salvage | None = None
    ) -> Candidates:
        inside = tuple(map(NodeSite.of, _inside(nodes)))
        made = cls(each.kernel or each.name for each in inside)
        made._nodes, made._inside = tuple(map(NodeSite.of, nodes)), inside
        made._ends, made.salvage = tuple(ends), salvage
        return made

    def said_of(self, error: CudaError) -> str:
        """The nodes that may have caused the reported fault, each with the place of its
        recording."""
        said = [str(each) for each in self._candidates(error)]
        if len(said) > _MOST:
            said[_MOST:] = [f"{len(said) - _MOST} more"]
        return said[0] if len(said) == 1 else "one of: " + "; ".join(said)

    def _candidates(self, error: CudaError) -> Sequence[NodeSite]:
        number = _NUMBER.search(error.hint)
        if number is not None:
            exact = self._at(int(number[1]))
            # A function of the user's may launch kernels whose names are unknown here.
            if exact is not None and (not exact.kernel or tells_of(exact.kernel, error)):
                return (exact,)
        every = self._inside
        return [each for each in every if tells_of(each.kernel, error)] or every

    def _at(self, number: int) -> NodeSite | None:
        pairs = zip(self._nodes, self._ends, strict=False)
        return next((node for node, end in pairs if number < end), None)


def _inside(nodes: Iterable[Node]) -> Iterator[Node]:
    """These nodes, with the nodes inside of a block in its place."""
    for node in nodes:
        if node.control is None:
            yield node
        else:
            yield from _inside(chain.from_iterable(node.control.bodies))
