"""Floor 1, graphs. Thin owners over cuGraph*: graphs, their nodes, and executable graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync import late

if TYPE_CHECKING:
    from cudasync.driver.graph.executable import GraphExec
    from cudasync.driver.graph.graph import Graph
    from cudasync.driver.graph.node import GraphNode

__all__ = ["Graph", "GraphExec", "GraphNode"]

if not TYPE_CHECKING:  # With `__getattr__` a type checker would accept any name.
    __getattr__ = late.names(
        __name__,
        {
            "executable": ("GraphExec",),
            "graph": ("Graph",),
            "node": ("GraphNode",),
        },
    )
