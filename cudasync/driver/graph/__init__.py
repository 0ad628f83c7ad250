"""Floor 1, graphs. Thin owners over cuGraph*: graphs, their nodes, and executable graphs."""

from __future__ import annotations

from cudasync.driver.graph.executable import GraphExec
from cudasync.driver.graph.graph import Graph
from cudasync.driver.graph.node import GraphNode

__all__ = ["Graph", "GraphExec", "GraphNode"]
