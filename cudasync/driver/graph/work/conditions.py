"""Floor 1, graphs. Conditional nodes: bodies that run if, or while, a condition holds.

The condition is a number beside the graph. A kernel sets it, by `cudaGraphSetConditional(handle,
value)` of the device runtime; each launch begins with its default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cuda.bindings import driver

from cudasync.driver.graph.work.work import Work

if TYPE_CHECKING:
    from typing import TypeAlias

    from cudasync.driver.device import Device

    Kind: TypeAlias = Literal["if", "while"]

_TYPES = {
    "if": driver.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF,
    "while": driver.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE,
}


class Conditional(Work):
    """Bodies of one condition: "if" with one body, or a second for the else; "while" with one.

    Once the node is added, `bodies` are the driver's graphs for them. (cuGraphAddNode)
    """

    kind = "conditional"
    add = "cuGraphAddNode"

    def __init__(self, kind: Kind, handle: Any, bodies: int = 1) -> None:
        if kind not in _TYPES:
            raise ValueError(
                f"the kind of a conditional node must be 'if' or 'while', not {kind!r}"
            )
        if not 1 <= bodies <= (2 if kind == "if" else 1):
            raise ValueError(f"an 'if' node has 1 or 2 bodies, a 'while' node has 1, not {bodies}")
        self._kind = kind
        self._handle = handle
        self._count = bodies
        self._params: Any = None

    def params(self, device: Device) -> tuple[Any, ...]:
        params = driver.CUgraphNodeParams()
        params.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        params.conditional.handle = self._handle
        params.conditional.type = _TYPES[self._kind]
        params.conditional.size = self._count
        params.conditional.ctx = device.context.handle()
        self._params = params
        return (params,)

    @property
    def bodies(self) -> list[Any]:
        """The driver's handles, owned by the node's graph."""
        assert self._params is not None
        found: list[Any] = self._params.conditional.phGraph_out[: self._count]
        return found
